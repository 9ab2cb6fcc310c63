"""Reads users' files: their digests, and tables of numbers (.npy, or CSV with or without headings)."""

import contextlib
import hashlib
import math
import stat
from pathlib import Path

import numpy as np

from pausejax.parts.parameter import LARGEST, SMALLEST

_MAX_BYTES = 2**33


def digest_of_file(path: Path) -> str:
    """Returns the SHA-256 of a file's content.

    Raises:
      OSError: the file can't be read.
    """
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def read_numbers(path: Path, columns: int | None) -> np.ndarray:
    """Reads a table of finite numbers with a given number of columns.

    Args:
      path: a .npy file, or else a text file with commas. A first line without numbers is a heading. Two
        kinds of first lines are refused: numbers of the columns (0, 1, 2, …), and whole numbers above
        decimals.
      columns: the number of columns, one for each client; None allows any number.

    Returns:
      float32 [rows, columns].

    Raises:
      ValueError: the file can't be read, or is not such a table; the message says what is wrong.
    """
    try:
        if not stat.S_ISREG(path.stat().st_mode):
            raise OSError("not a regular file")
        read = _npy(path) if path.suffix == ".npy" else _text(path)
        if read.dtype.kind not in "buif":
            raise ValueError(f"must hold real numbers, not {read.dtype}")
        table = np.asarray(read, np.float64)
    except (OSError, ValueError, TypeError, EOFError, MemoryError, SyntaxError) as error:
        raise ValueError(f"can't be read: {error}") from error
    if table.ndim != 2 or not table.size or table.shape[1] != (columns or table.shape[1]):
        wanted = f"{columns} columns, one for each client" if columns else "rows and columns"
        raise ValueError(f"must have {wanted}, but has shape {table.shape}")
    size = np.abs(table)
    if not (np.isfinite(table).all() and ((table == 0) | ((size >= SMALLEST) & (size <= LARGEST))).all()):
        raise ValueError(
            f"must hold finite numbers; absolute values except 0: from {SMALLEST:g} to {LARGEST:g}"
        )
    return table.astype(np.float32)


def _npy(path: Path) -> np.ndarray:
    with path.open("rb") as file:
        if file.read(6) != b"\x93NUMPY":
            raise ValueError("not a .npy file")
        file.seek(0)
        version = np.lib.format.read_magic(file)
        header = (
            np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
        )
        shape, _, dtype = header(file)
    # The header may claim a larger size than the file or the memory has.
    promised = math.prod(shape) * dtype.itemsize
    size = min(path.stat().st_size, _MAX_BYTES)
    if promised > size:
        raise ValueError(f"its header announces {promised} bytes of numbers, but at most {size} are possible")
    with path.open("rb") as file:
        return np.load(file, allow_pickle=False)


def _text(path: Path) -> np.ndarray:
    with path.open(encoding="utf-8-sig") as file:
        lines = (line.partition("#")[0].strip() for line in file)
        # The first line that is neither blank nor a comment, and its number.
        place, first = next(((at, line) for at, line in enumerate(lines) if line), (0, ""))
    skipped = 0 if not first or _is_row(first) else place + 1
    table = np.loadtxt(path, delimiter=",", ndmin=2, skiprows=skipped, encoding="utf-8-sig")
    is_whole = all(cell.strip().isdecimal() for cell in first.split(","))
    if is_whole and _begins_with_column_numbers(table):
        raise ValueError(
            f'its first line "{first[:40]}" may number the columns, as pandas does by default. Write '
            "the file without this line (header=False), or with decimal points (0.0) if these are values"
        )
    if is_whole and _begins_with_names(table):
        raise ValueError(
            f'its first line "{first[:40]}" has whole numbers only, unlike all other lines, and may '
            "name the columns. Write the file without this line, or with a decimal point (17.0) if these are "
            "values"
        )
    return table


def _begins_with_column_numbers(table: np.ndarray) -> bool:
    """Returns whether the first row of a table is 0, 1, 2, … or 1, 2, 3, …, and so may number the columns.

    In a table of one or two columns, only 0, 1, … numbers the columns. Returns False if the table has one row
    only.
    """
    columns = table.shape[1]
    numbered = [np.arange(columns), np.arange(1, columns + 1)][: 1 if columns < 3 else 2]
    return len(table) > 1 and any(np.array_equal(table[0], numbers) for numbers in numbered)


def _begins_with_names(table: np.ndarray) -> bool:
    """Returns whether a first row of whole numbers may name the columns, such as by numbers of devices.

    It has at least three numbers, and each other row has a decimal.
    """
    return table.shape[1] > 2 and len(table) > 1 and bool((table[1:] % 1).any(axis=1).all())


def _is_row(line: str) -> bool:
    """Returns whether the first line of a file is part of the table, and no heading.

    A line with a number is part of the table, so a misprint in it is not hidden.
    """
    for cell in line.split(","):
        with contextlib.suppress(ValueError):
            float(cell)
            return True
    return False
