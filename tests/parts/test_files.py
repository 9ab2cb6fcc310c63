"""Tables in users' files: what is read, and one line for what is none."""

import os
import zipfile

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pausejax.parts.files import read_numbers

TABLE = np.array([[1.0, 2.5], [3.0, -4.0]])


@pytest.mark.parametrize(
    "text",
    [
        "1,2.5\n3,-4\n",
        "a,b\n1,2.5\n3,-4\n",
        "# a comment\n1,2.5\n3,-4",
        "client 0, client 1\n1 , 2.5\n\n3,-4\n",
    ],
)
def test_text_with_and_without_a_heading(tmp_path, text):
    (tmp_path / "t.csv").write_text(text)
    found = read_numbers(tmp_path / "t.csv", 2)
    np.testing.assert_array_equal(found, TABLE)
    assert found.dtype == np.float32


def test_a_mark_of_the_byte_order_is_no_heading(tmp_path):
    (tmp_path / "t.csv").write_text("0.5\n0.25\n", encoding="utf-8-sig")
    np.testing.assert_array_equal(read_numbers(tmp_path / "t.csv", 1), [[0.5], [0.25]])


@pytest.mark.parametrize("columns", [1, 2, 3, 7])
def test_a_heading_that_numbers_the_columns_is_refused(tmp_path, columns):
    table = pd.DataFrame(np.full((4, columns), 0.5))
    for first in (0, 1) if columns > 2 else (0,):
        table.columns = range(first, first + columns)
        table.to_csv(tmp_path / "t.csv", index=False)
        with pytest.raises(ValueError, match="may number the columns"):
            read_numbers(tmp_path / "t.csv", columns)
    table.to_csv(tmp_path / "t.csv", index=False, header=False)
    np.testing.assert_array_equal(read_numbers(tmp_path / "t.csv", columns), table)


@pytest.mark.parametrize("rows", [[[0.5, 1.0, 0.25]], [[0.5, 2.0, 3.0], [1.0, 0.5, 2.0]]])
def test_a_heading_of_numbers_of_devices_is_refused(tmp_path, rows):
    table = pd.DataFrame(rows, columns=["17", "23", "42"])
    table.to_csv(tmp_path / "t.csv", index=False)
    with pytest.raises(ValueError, match='its first line "17,23,42" has whole numbers only'):
        read_numbers(tmp_path / "t.csv", 3)
    lines = (tmp_path / "t.csv").read_text().replace("17,23,42", "17.0,23,42")
    (tmp_path / "t.csv").write_text(lines)
    np.testing.assert_array_equal(read_numbers(tmp_path / "t.csv", 3), [[17, 23, 42], *rows])


@pytest.mark.parametrize("before", ["", "# seconds\n", "\n", "\n# seconds\n\n"])
def test_comments_and_blank_lines_hide_no_heading(tmp_path, before):
    path = tmp_path / "t.csv"
    path.write_text(before + "0,1,2 # clients\n0.5,1.5,2.5\n")
    with pytest.raises(ValueError, match='its first line "0,1,2" may number the columns'):
        read_numbers(path, 3)
    path.write_text(before + "17,18,19\n0.5,1.5,2.5\n")
    with pytest.raises(ValueError, match='its first line "17,18,19" has whole numbers only'):
        read_numbers(path, 3)
    for heading in ("", "client #1,client #2,c\n"):
        path.write_text(before + heading + "0.25,1,2\n# more\n0.5,1.5,2.5\n")
        np.testing.assert_array_equal(read_numbers(path, 3), [[0.25, 1, 2], [0.5, 1.5, 2.5]])


@pytest.mark.parametrize("columns", [1, 2, 3])
def test_a_heading_is_refused_although_all_else_is_0_or_1(tmp_path, columns):
    """Such as that of the availability of two clients."""
    rows = pd.DataFrame(np.ones((3, columns), int))
    rows.to_csv(tmp_path / "t.csv", index=False)
    with pytest.raises(ValueError, match="may number the columns"):
        read_numbers(tmp_path / "t.csv", columns)


@pytest.mark.parametrize("rows", [[[0.0, 1], [1, 1]], [[0, 1, 2]], [[1, 2], [3, 4]], [[1, 2, 4], [0, 1, 2]]])
def test_rows_that_number_no_columns_are_numbers(tmp_path, rows):
    pd.DataFrame(rows).to_csv(tmp_path / "t.csv", index=False, header=False)
    np.testing.assert_array_equal(read_numbers(tmp_path / "t.csv", len(rows[0])), rows)


@pytest.mark.parametrize("dtype", [np.float64, np.float16, np.int32, bool])
def test_arrays_of_any_number(tmp_path, dtype):
    np.save(tmp_path / "t.npy", TABLE.astype(dtype))
    np.testing.assert_array_equal(read_numbers(tmp_path / "t.npy", 2), TABLE.astype(dtype).astype(np.float32))


def test_a_table_may_have_any_number_of_columns(tmp_path):
    np.save(tmp_path / "t.npy", TABLE[:, :1])
    np.testing.assert_array_equal(read_numbers(tmp_path / "t.npy", None), TABLE[:, :1])
    (tmp_path / "t.csv").write_text("")
    with (
        pytest.raises(ValueError, match="must have rows and columns, but has shape"),
        pytest.warns(UserWarning, match="no data"),
    ):
        read_numbers(tmp_path / "t.csv", None)


def promising(path):
    """A heading that promises far more than there is."""
    with path.open("wb") as file:
        np.lib.format.write_array_header_1_0(
            file, {"descr": "<f8", "fortran_order": False, "shape": (2**40, 2)}
        )
        file.write(b"\0" * 64)


def zipped(path):
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("a.npy", b"\0" * 32)


def pickled(path):
    np.save(path, np.array([["a", None]], object), allow_pickle=True)


def cut(path):
    np.save(path, TABLE)
    path.write_bytes(path.read_bytes()[:-5])


def imaginary(path):
    np.save(path, TABLE * 1j)


def words(path):
    np.save(path, TABLE.astype(str))


def dates(path):
    np.save(path, TABLE.astype("M8[s]"))


@pytest.mark.parametrize("make", [imaginary, words, dates])
def test_what_is_no_real_number_is_none(tmp_path, make):
    make(tmp_path / "t.npy")
    with pytest.raises(ValueError, match=r"can't be read: must hold real numbers"):
        read_numbers(tmp_path / "t.npy", 2)


@pytest.mark.parametrize("make", [promising, zipped, pickled, cut, os.mkfifo, os.mkdir])
def test_what_is_no_array_is_one_line(tmp_path, make):
    make(tmp_path / "t.npy")
    with pytest.raises(ValueError) as raised:
        read_numbers(tmp_path / "t.npy", 2)
    assert str(raised.value).startswith("can't be read: ") and "\n" not in str(raised.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "must have 2 columns"),
        ("a,b\n", "must have 2 columns"),
        ("1,2,3\n", "must have 2 columns, one for each client, but has shape (1, 3)"),
        ("1,2\n3\n", "can't be read: "),
        ("1,2\nx,3\n", "can't be read: "),
        ("1,nan\n", "must hold finite numbers"),
        ("a,b\n1,inf\n", "must hold finite numbers"),
        ("1,1e300\n", "must hold finite numbers"),
        ("\x00\x01", "must have 2 columns"),
        ("1,O.5\n3,4\n", "can't be read: "),
    ],
)
@pytest.mark.filterwarnings("ignore:loadtxt")
def test_what_is_no_table_is_one_line(tmp_path, text, message):
    (tmp_path / "t.csv").write_text(text)
    with pytest.raises(ValueError) as raised:
        read_numbers(tmp_path / "t.csv", 2)
    assert message in str(raised.value) and "\n" not in str(raised.value)


@settings(deadline=None, max_examples=60)
@given(st.binary(max_size=200), st.sampled_from([".npy", ".csv"]))
@pytest.mark.filterwarnings("ignore:loadtxt")
def test_no_content_is_more_than_one_line(tmp_path_factory, content, ending):
    path = tmp_path_factory.mktemp("any") / f"t{ending}"
    path.write_bytes((b"\x93NUMPY\x01\x00" if ending == ".npy" else b"") + content)
    problem = ""
    try:
        found = read_numbers(path, 2)
    except ValueError as error:
        problem = str(error)
    assert "\n" not in problem
    assert problem or (found.ndim == 2 and np.isfinite(found).all())
