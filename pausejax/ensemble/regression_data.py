"""Loads regression data sets: three of the EFL-FG paper from UCI files, and one of scikit-learn."""

import csv
import gzip
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple, TextIO

import numpy as np

from pausejax.parts import regression_dataset


class RegressionData(NamedTuple):
    """Regression data set, in its original units and in the order of its file."""

    name: str
    features: np.ndarray
    """float64 [n, d], the features."""
    targets: np.ndarray
    """float64 [n], the targets."""


def checked(data: RegressionData, where: str) -> RegressionData:
    """Returns a data set with float64 arrays.

    Raises:
      ValueError: the features are not finite numbers [n, d] with n, d > 0, or the targets are not finite
        numbers [n]; the message begins with `where`.
    """
    arrays: dict[str, np.ndarray] = {}
    for field, dims, wanted in (("features", 2, "[n, d] with n, d > 0"), ("targets", 1, "[n] with n > 0")):
        needed, given = f"{where}: {field} must be numbers of shape {wanted}", getattr(data, field)
        if np.ma.is_masked(given):
            raise ValueError(f"{where}: {field} must not have masked entries: leave them out, or fill them")
        try:
            array = np.asarray(given)
        except ValueError as error:
            raise ValueError(f"{needed}, not rows of unequal lengths") from error
        if array.dtype.kind not in "buif" or array.ndim != dims or not array.size:
            raise ValueError(f"{needed}, not {array.dtype} {list(array.shape)}")
        arrays[field] = array.astype(np.float64)
        if not np.isfinite(arrays[field]).all():
            raise ValueError(f"{where}: {field} must be finite, but has infinite or NaN entries")
    rows, targets = len(arrays["features"]), len(arrays["targets"])
    if rows != targets:
        raise ValueError(f"{where}: must have as many targets as rows of features, {rows}, not {targets}")
    return RegressionData(data.name, **arrays)


class _Table(NamedTuple):
    file: str
    origin: str
    header: str
    """The first line of the file: the names of the columns, separated by commas."""
    labels: tuple[str, ...]
    """The names of the leading columns that are not numbers; these columns are left out."""
    target: str
    other_outputs: tuple[str, ...] = ()


_TABLES = {
    "bias": _Table(
        "Bias_correction_ucl.csv",
        "UCI 'Bias correction of numerical prediction model temperature forecast'",
        "station,Date,Present_Tmax,Present_Tmin,LDAPS_RHmin,LDAPS_RHmax,LDAPS_Tmax_lapse,LDAPS_Tmin_lapse,"
        "LDAPS_WS,LDAPS_LH,LDAPS_CC1,LDAPS_CC2,LDAPS_CC3,LDAPS_CC4,LDAPS_PPT1,LDAPS_PPT2,LDAPS_PPT3,"
        "LDAPS_PPT4,lat,lon,DEM,Slope,Solar radiation,Next_Tmax,Next_Tmin",
        labels=("station", "Date"),
        target="Next_Tmin",
        other_outputs=("Next_Tmax",),
    ),
    "ccpp": _Table(
        "Folds5x2_pp.csv",
        "UCI 'Combined Cycle Power Plant' (its zip holds Folds5x2_pp.xlsx: save Sheet1 as CSV)",
        "AT,V,AP,RH,PE",
        labels=(),
        target="PE",
    ),
    "energy": _Table(
        "energydata_complete.csv",
        "UCI 'Appliances energy prediction'",
        "date,Appliances,lights,T1,RH_1,T2,RH_2,T3,RH_3,T4,RH_4,T5,RH_5,T6,RH_6,T7,RH_7,T8,RH_8,T9,RH_9,"
        "T_out,Press_mm_hg,RH_out,Windspeed,Visibility,Tdewpoint,rv1,rv2",
        labels=("date",),
        target="Appliances",
    ),
}
REGRESSION_DATASETS: tuple[str, ...] = ("diabetes", *_TABLES)


def load_regression(name: str, data_dir: str | Path | None = None) -> RegressionData:
    """Loads one data set.

    Rows without a target are left out, since no prediction can be scored on them. A missing feature is
    replaced by the mean of its column. `diabetes` is part of scikit-learn and needs no file.

    Args:
      name: one of `REGRESSION_DATASETS`.
      data_dir: the folder that holds the UCI file, plain (`.csv`) or compressed (`.csv.gz`).

    Raises:
      ValueError: the name is unknown, or the file is missing or is not the expected table.
    """
    if name == "diabetes":
        from sklearn.datasets import load_diabetes

        features, targets = load_diabetes(return_X_y=True, scaled=False)
        return RegressionData(name, features.astype(np.float64), targets.astype(np.float64))
    if name not in _TABLES:
        raise ValueError(f"dataset: must be one of {', '.join(REGRESSION_DATASETS)}, not {name!r}")
    table = _TABLES[name]
    features, targets = _read(_find(table, name, data_dir), table)
    scored = ~np.isnan(targets)
    features, targets = features[scored], targets[scored]
    return RegressionData(name, np.where(np.isnan(features), np.nanmean(features, axis=0), features), targets)


def _register(name: str) -> None:
    def load(*, data_dir: str | Path | None) -> RegressionData:
        return load_regression(name, data_dir)

    load.__name__ = load.__qualname__ = name
    regression_dataset(load)


for _name in REGRESSION_DATASETS:
    _register(_name)


def _find(table: _Table, name: str, data_dir: str | Path | None) -> Path:
    wanted = f"{table.file} (or {table.file}.gz)"
    if data_dir is None:
        raise ValueError(
            f"data_dir: must be given for dataset {name!r}: the folder with {wanted}, from {table.origin}"
        )
    for file in (table.file, f"{table.file}.gz"):
        path = Path(data_dir) / file
        if path.is_file():
            return path
    raise ValueError(f"data_dir: {data_dir} must hold {wanted}, from {table.origin}, but does not")


@contextmanager
def _open(path: Path) -> Iterator[TextIO]:
    opener = gzip.open if path.suffix == ".gz" else open
    with opener(path, "rt", newline="", encoding="utf-8-sig") as file:
        yield file


def _read(path: Path, table: _Table) -> tuple[np.ndarray, np.ndarray]:
    """Returns the features [n, d] and targets [n] of a file; an empty cell is NaN."""
    try:
        with _open(path) as file:
            rows = [row for row in csv.reader(file) if row]
    except (OSError, EOFError, UnicodeDecodeError, csv.Error) as error:
        raise ValueError(f"data_dir: {path} can't be read as CSV text: {error}") from error
    header = table.header.split(",")
    found = [cell.strip() for cell in rows[0]] if rows else []
    if found != header:
        detail = f"it must have {len(header)} columns, not {len(found)}"
        if len(found) == len(header):
            detail = next(
                f"a column must be {b!r}, not {a!r}" for a, b in zip(found, header, strict=True) if a != b
            )
        raise ValueError(f"data_dir: {path} is not the table of {table.origin}: {detail}")
    # The Bias Correction file ends with two lines of column minima and maxima, without station and date.
    first = len(table.labels)
    samples = [row for row in rows[1:] if not first or any(row[:first])]
    numeric = range(first, len(header))
    values = np.empty((len(samples), len(numeric)))
    for number, row in enumerate(samples):
        try:
            if len(row) != len(header):
                raise ValueError(f"{len(row)} cells")
            values[number] = [float(row[i]) if row[i].strip() else np.nan for i in numeric]
        except ValueError as error:
            raise ValueError(
                f"data_dir: {path}, sample {number + 1}: must have numbers in its {len(header)} columns"
            ) from error
    columns = {header[i]: values[:, position] for position, i in enumerate(numeric)}
    for name, column in columns.items():
        if np.isnan(column).all():
            raise ValueError(f"data_dir: {path}: column {name!r} must have values, but has none")
    targets = columns.pop(table.target)
    for name in table.other_outputs:
        del columns[name]
    return np.stack(list(columns.values()), axis=1), targets
