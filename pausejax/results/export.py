"""Writes a result as Parquet or CSV, a block of runs at a time."""

from collections.abc import Iterator, Sequence
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import xarray as xr

from pausejax.analysis.frames import curve_frames, harmless, runs_frame
from pausejax.atomic import replacing

FORMATS = ("parquet", "csv")


def export(
    result: xr.Dataset,
    path: str | Path,
    format: str = "parquet",
    *,
    curves: bool = False,
    variables: Sequence[str] | None = None,
) -> int:
    """Writes one of the tables of `analysis.to_dataframe`. A table of curves is written in blocks of runs.

    In CSV, texts that a spreadsheet would evaluate as a formula get a leading apostrophe; numbers do not
    change. The file is written under another name and then renamed, so a reader sees the whole file or no
    file.

    Args:
      result: the result, as `pausejax.open` returns it.
      path: the path of the file to write.
      format: "parquet" or "csv".
      curves: whether the table has one row per run and round instead of one row per run.
      variables: the names of the variables in a table of curves; None: all variables with such values.

    Returns:
      The number of rows.

    Raises:
      ValueError: the format or a variable is unknown.
      OSError: the file can't be written.
    """
    if format not in FORMATS:
        raise ValueError(f"format = {format!r}: must be one of {', '.join(FORMATS)}")
    path = Path(path)
    frames = (
        curve_frames(result, variables) if curves or variables is not None else iter([runs_frame(result)])
    )
    if format == "csv":
        frames = map(harmless, frames)
    with replacing(path) as partial:
        return _write(frames, partial, format)


def _write(frames: Iterator[pd.DataFrame], path: Path, format: str) -> int:
    first = pa.Table.from_pandas(next(frames), preserve_index=False).replace_schema_metadata()
    # If no policy of the first block reads a text parameter, the parameter's column has no type.
    schema = pa.schema(
        [field.with_type(pa.string()) if pa.types.is_null(field.type) else field for field in first.schema]
    )
    opened = pa.parquet.ParquetWriter if format == "parquet" else pa.csv.CSVWriter
    rows = first.num_rows
    # The file is opened here because Arrow interprets some names as URLs.
    with path.open("wb") as file, opened(file, schema) as writer:
        writer.write_table(first.cast(schema))
        for frame in frames:
            table = pa.Table.from_pandas(frame, schema=schema, preserve_index=False)
            writer.write_table(table)
            rows += table.num_rows
    return rows
