"""Tables against the result they are made of, in memory and read back from files."""

import numpy as np
import pandas as pd
import pytest

from pausejax import analysis
from pausejax.analysis import frames, per_run
from pausejax.commands import main as cli
from pausejax.results.export import export

from .made_up import build, store


def test_one_row_per_run_with_every_parameter_and_metric(made):
    result, rows, _ = made
    table = analysis.to_dataframe(result)
    assert len(table) == len(rows) and table["identity"].is_unique
    assert "gamma" not in table and "policy" in table
    figures = analysis.finals(result)
    for place, row in enumerate(rows):
        own = table.iloc[place]
        assert own["policy"] == row["policy"] and own["seed"] == row["seed"]
        np.testing.assert_equal(own["privacy_weight"], row.get("privacy_weight", np.nan))
        assert own["annealing_steps"] is pd.NA or own["annealing_steps"] == row["annealing_steps"]
        np.testing.assert_equal(own["max_leakage"], figures["max_leakage"].values[place])
    assert table["annealing_steps"].isna().sum() == sum("annealing_steps" not in row for row in rows)


def test_curves_have_a_row_for_each_recorded_round(result):
    table = analysis.to_dataframe(result, curves=True)
    for place in range(result.sizes["run"]):
        run = result.isel(run=place)
        own = table[table["identity"] == str(run["identity"].values)]
        last = int(np.isfinite(run["elapsed"]).sum())
        assert own["round"].tolist() == list(range(1, last + 1))
        np.testing.assert_array_equal(own["elapsed"], run["elapsed"].values[:last])
        measured = own.set_index("round")["test_accuracy"].dropna()
        wanted = run["test_accuracy"].values
        assert measured.index.tolist() == run["eval_round"].values[np.isfinite(wanted)].tolist()
        np.testing.assert_array_equal(measured, wanted[np.isfinite(wanted)])


def test_curves_of_selected_rounds_have_their_own_evaluations(result):
    evaluated = result["eval_round"].values.tolist()
    for rounds in (slice(evaluated[0] + 1, None), slice(1, evaluated[-1] - 1), [*evaluated[:2], 1]):
        table = analysis.to_dataframe(result.sel(round=rounds), variables=["test_accuracy", "elapsed"])
        whole = analysis.to_dataframe(result, variables=["test_accuracy", "elapsed"])
        wanted = whole[whole["round"].isin(result.sel(round=rounds)["round"].values)]
        order = ["identity", "round"]
        table, wanted = (each.sort_values(order).reset_index(drop=True) for each in (table, wanted))
        pd.testing.assert_frame_equal(table, wanted)


def test_curves_of_a_part_of_a_result_without_rounds(result):
    wanted = analysis.to_dataframe(result, variables=["test_accuracy"])
    part = result[["test_accuracy"]]
    assert "round" not in part.coords
    pd.testing.assert_frame_equal(analysis.to_dataframe(part, curves=True), wanted)


def test_selected_clients_are_a_table_of_their_own(result):
    table = analysis.to_dataframe(result, variables=["selected"])
    again = table.groupby(["identity", "client" if "client" in table else "selected"]).size()
    for place in (0, 11):
        run = result.isel(run=place)
        counts = again[str(run["identity"].values)].reindex(range(5), fill_value=0)
        np.testing.assert_array_equal(counts, run["counts"].values)
    counts = analysis.to_dataframe(result, variables=["counts"])
    assert list(counts.columns[-2:]) == ["client", "counts"] and len(counts) == 5 * result.sizes["run"]


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (["elapsd"], "variables: 'elapsd' is not in the result, which has round_latency, "),
        (["diverged_round"], "variables: 'diverged_round' has one value for each run"),
        (["elapsed", "counts"], "elapsed, counts have different dimensions"),
        ([], "variables: must name one variable"),
    ],
)
def test_variables_that_make_no_table_are_refused(result, names, message):
    with pytest.raises(ValueError, match=message):
        analysis.to_dataframe(result, variables=names)


@pytest.mark.parametrize("curves", [False, True])
@pytest.mark.parametrize(("format", "read"), [("parquet", pd.read_parquet), ("csv", pd.read_csv)])
def test_files_hold_the_table_block_by_block(stored, tmp_path, monkeypatch, format, read, curves):
    monkeypatch.setattr(per_run.run_blocks, "__kwdefaults__", {"max_bytes": 1})
    monkeypatch.setattr(frames.curve_frames, "__defaults__", (None, 1))
    path = tmp_path / f"table.{format}"
    rows = export(stored, path, format, curves=curves)
    whole = analysis.to_dataframe(stored.load(), curves=curves)
    found = read(path)
    assert len(found) == rows == len(whole) and list(found.columns) == list(whole.columns)
    for name in whole:
        one, two = whole[name], found[name]
        if pd.api.types.is_numeric_dtype(one):
            one, two = (series.to_numpy(np.float64, na_value=np.nan) for series in (one, two))
            np.testing.assert_allclose(two, one, rtol=1e-6, err_msg=name)
        else:
            assert two.astype(str).tolist() == one.astype(str).tolist(), name
    if format == "parquet":
        assert found["seed"].dtype.kind == "i" and found["elapsed"].dtype == np.float32


def test_words_that_the_first_policy_lacks_keep_their_type(result, tmp_path):
    axis = ("run", np.where(result["policy"] == "uniform", "brute", ""))
    lacking = ("run", np.where(result["policy"] == "uniform", "", "selector"))
    ordered = result.assign_coords(selector=axis, unread_parameters=lacking).sortby("policy")
    ordered = ordered.assign_attrs(axes='["selector"]')
    for array in ordered.data_vars.values():
        array.encoding["chunks"] = (5, *array.shape[1:])
    parts = list(frames.curve_frames(ordered, ["elapsed"], 1))
    assert parts[0]["selector"].isna().all() and not parts[-1]["selector"].isna().any()
    export(ordered, tmp_path / "curves.parquet", variables=["elapsed"])
    assert pd.read_parquet(tmp_path / "curves.parquet")["selector"].dropna().unique().tolist() == ["brute"]


def test_failed_export_leaves_the_old_file(result, tmp_path):
    path = tmp_path / "curves.csv"
    path.write_text("old")
    with pytest.raises(ValueError, match="format = 'xls': must be one of parquet, csv"):
        export(result, path, "xls")
    with pytest.raises(ValueError, match="not in the result"):
        export(result, path, "csv", variables=["nothing"])
    assert path.read_text() == "old" and sorted(tmp_path.iterdir()) == [path]
    with pytest.raises(OSError):
        export(result, tmp_path / "no" / "folder.csv", "csv")


@pytest.fixture
def folder(result, tmp_path):
    store(result, tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    ("options", "name"),
    [
        ([], "runs.parquet"),
        (["--curves"], "curves.parquet"),
        (["--format", "csv", "--curves"], "curves.csv"),
        (["--format", "csv", "--out", "{folder}/mine.txt"], "mine.txt"),
    ],
)
def test_command_names_its_file(folder, options, name, capsys):
    arguments = ["export", str(folder), *(option.format(folder=folder) for option in options)]
    assert cli.main(arguments) == cli.OK
    assert (folder / name).stat().st_size > 100
    assert f"rows: {folder / name}" in capsys.readouterr().out
    assert cli.main([*arguments, "--quiet"]) == cli.OK and capsys.readouterr().out == ""


def test_an_empty_result_makes_an_empty_table(result):
    empty = result.isel(run=slice(0, 0))
    assert len(analysis.to_dataframe(empty)) == 0
    assert len(analysis.to_dataframe(empty, curves=True)) == 0


def test_no_word_in_csv_is_a_formula_and_numbers_stay_numbers(tmp_path):
    labels = ["=1+1", "+cmd|'/c calc'!A1", "-1+2", "@SUM(A1)", "-5", "+1e3", "plain = 1", "\tx", "'=1+1"]
    result, _, _ = build({label: {} for label in labels}, 1, ())
    result["regret"] = -abs(result["regret"]) - 1
    export(result, tmp_path / "runs.csv", "csv")
    read = pd.read_csv(tmp_path / "runs.csv", keep_default_na=False, dtype={"policy": str})
    kept = {"-5", "+1e3", "plain = 1"}
    assert set(read["policy"]) == {label if label in kept else f"'{label}" for label in labels}
    assert read["cumulative_regret"].dtype == float and (read["cumulative_regret"] < 0).all()
    export(result, tmp_path / "curves.csv", "csv", curves=True)
    assert pd.read_csv(tmp_path / "curves.csv")["policy"].str.startswith("'=1+1").any()
    export(result, tmp_path / "runs.parquet")
    assert set(pd.read_parquet(tmp_path / "runs.parquet")["policy"]) == set(labels)
