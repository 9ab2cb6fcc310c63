"""How a result was made: on which devices, with which versions, by which command. Its attribute `made`."""

import json
from collections.abc import Sequence
from typing import Any, TypedDict, cast

import xarray as xr

from pausejax.analysis import schema

ATTRIBUTE = "made"


class Record(TypedDict):
    """What one process says of itself."""

    command: str
    """The command line as it was typed; "" without a command."""
    devices: str
    """Such as "2 × NVIDIA H100"."""
    versions: dict[str, str]


def said(result: xr.Dataset, records: Sequence[Record]) -> xr.Dataset:
    """Returns the result with the records in its attributes, sorted; leaves out what is no record."""
    records = [one for one in records if not schema.problem(ATTRIBUTE, [one])]
    if not records:
        return result
    each = sorted({json.dumps(found, sort_keys=True) for found in records})
    return result.assign_attrs({ATTRIBUTE: f"[{', '.join(each)}]"})


def records_in(result: xr.Dataset) -> list[Record]:
    """Returns the records that a result carries; none in one of an older release."""
    found: list[Any] = schema.read(result, ATTRIBUTE)
    return [cast(Record, one) for one in found]
