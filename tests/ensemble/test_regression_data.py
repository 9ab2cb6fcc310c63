"""Reading the regression tables, right and wrong."""

import gzip

import numpy as np
import pytest

from pausejax.ensemble import REGRESSION_DATASETS, load_regression

CCPP = "AT,V,AP,RH,PE\n14.96,41.76,1024.07,73.17,463.26\n25.18,62.96,1020.04,59.08,444.37\n"


def test_embedded_set_needs_no_file():
    data = load_regression("diabetes")
    assert data.features.shape == (442, 10)
    assert data.features[0, :3].tolist() == [59, 2, 32.1]  # years, sex, body mass index
    assert data.targets.min() == 25 and data.targets.max() == 346


@pytest.mark.parametrize("compressed", [False, True])
def test_plain_and_compressed_files_read_alike(tmp_path, compressed):
    if compressed:
        (tmp_path / "Folds5x2_pp.csv.gz").write_bytes(gzip.compress(CCPP.encode()))
    else:
        (tmp_path / "Folds5x2_pp.csv").write_text("\ufeff" + CCPP, encoding="utf-8")
    data = load_regression("ccpp", tmp_path)
    np.testing.assert_array_equal(
        data.features, [[14.96, 41.76, 1024.07, 73.17], [25.18, 62.96, 1020.04, 59.08]]
    )
    np.testing.assert_array_equal(data.targets, [463.26, 444.37])


def test_bias_correction_drops_extremes_and_fills_gaps(tmp_path):
    header = (
        "station,Date,Present_Tmax,Present_Tmin,LDAPS_RHmin,LDAPS_RHmax,LDAPS_Tmax_lapse,LDAPS_Tmin_lapse,"
        "LDAPS_WS,LDAPS_LH,LDAPS_CC1,LDAPS_CC2,LDAPS_CC3,LDAPS_CC4,LDAPS_PPT1,LDAPS_PPT2,LDAPS_PPT3,"
        "LDAPS_PPT4,lat,lon,DEM,Slope,Solar radiation,Next_Tmax,Next_Tmin"
    )

    def row(label, first, target):
        return ",".join([label, first, *["2"] * 20, "31", target])

    lines = [
        header,
        row("1,2013-06-30", "10", "20"),
        row("2,2013-06-30", "", "21"),
        row("3,2013-06-30", "14", "23"),
        row("4,2013-06-30", "500", ""),
        row(",", "-99", "0"),
        row(",", "99", "99"),
    ]
    (tmp_path / "Bias_correction_ucl.csv").write_text("\n".join(lines))
    data = load_regression("bias", tmp_path)
    assert data.features.shape == (3, 21)
    np.testing.assert_array_equal(data.targets, [20, 21, 23])
    np.testing.assert_array_equal(data.features[:, 0], [10, 12, 14])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a,b\n1,2\n", "not the table of UCI 'Combined Cycle.*: it must have 5 columns, not 2"),
        ("AT,V,AP,PE,RH\n1,2,3,4,5\n", "a column must be 'RH', not 'PE'"),
        ("AT,V,AP,RH,PE\n1,2,3,4,five\n", "sample 1: must have numbers in its 5 columns"),
        ("AT,V,AP,RH,PE\n1,2,3,4,5\n1,2\n", "sample 2: must have numbers in its 5 columns"),
        ("AT,V,AP,RH,PE\n1,5,2,5,3,5,4,5,5,5\n", "sample 1: must have numbers in its 5 columns"),
        ("AT,V,AP,RH,PE\n1,2,3,4,\n", "column 'PE' must have values"),
        ("AT,V,AP,RH,PE\n", "column 'AT' must have values"),
        ("", "it must have 5 columns, not 0"),
    ],
)
def test_wrong_files_are_described(tmp_path, text, message):
    (tmp_path / "Folds5x2_pp.csv").write_text(text)
    with pytest.raises(ValueError, match=message) as caught:
        load_regression("ccpp", tmp_path)
    assert "\n" not in str(caught.value) and "Folds5x2_pp.csv" in str(caught.value)


def test_a_workbook_under_the_name_of_the_csv_is_described(tmp_path):
    (tmp_path / "Folds5x2_pp.csv").write_bytes(b"PK\x03\x04\x14\x00\x06\x00\xff\xfe\x9f")
    with pytest.raises(ValueError, match=r"Folds5x2_pp\.csv can't be read as CSV text"):
        load_regression("ccpp", tmp_path)
    (tmp_path / "Folds5x2_pp.csv").unlink()
    (tmp_path / "Folds5x2_pp.csv.gz").write_bytes(b"no gzip at all")
    with pytest.raises(ValueError, match="can't be read as CSV text"):
        load_regression("ccpp", tmp_path)


def test_missing_files_are_named(tmp_path):
    with pytest.raises(ValueError, match=r"the folder with energydata_complete\.csv"):
        load_regression("energy")
    with pytest.raises(ValueError, match=r"must hold Folds5x2_pp\.csv .or .*\.gz.*save Sheet1 as CSV"):
        load_regression("ccpp", tmp_path)
    with pytest.raises(ValueError, match="dataset: must be one of diabetes, bias, ccpp, energy, not 'enrgy'"):
        load_regression("enrgy")


@pytest.mark.parametrize(
    ("name", "shape", "low", "high"),
    [
        ("bias", (7723, 21), 11.3, 29.8),
        ("ccpp", (9568, 4), 420.26, 495.76),
        ("energy", (19735, 27), 10, 1080),
    ],
)
def test_real_tables(shared, name, shape, low, high):
    data = load_regression(name, shared / "data" / "uci")
    assert data.features.shape == shape and np.isfinite(data.features).all()
    assert data.targets.min() == low and data.targets.max() == high
    assert name in REGRESSION_DATASETS
