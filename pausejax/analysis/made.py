"""The attribute `made` of a result: the commands, devices and versions with which it was made."""

import json
from collections.abc import Sequence
from typing import Any, TypedDict, cast

import xarray as xr

from pausejax.analysis import schema

ATTRIBUTE = "made"


class Record(TypedDict):
    """The command, the devices and the versions of one process that simulated runs."""

    command: str
    """The command line as it was typed; "" if there was none."""
    devices: str
    """The number and the name of the devices, such as "2 × NVIDIA H100"."""
    versions: dict[str, str]


def with_records(result: xr.Dataset, records: Sequence[Record]) -> xr.Dataset:
    """Returns the result with `records`, sorted, in its attribute `made`; leaves out invalid records."""
    records = [one for one in records if not schema.problem(ATTRIBUTE, [one])]
    if not records:
        return result
    each = sorted({json.dumps(found, sort_keys=True) for found in records})
    return result.assign_attrs({ATTRIBUTE: f"[{', '.join(each)}]"})


def records_in(result: xr.Dataset) -> list[Record]:
    """Returns the records in a result's attributes; results of older releases have none."""
    found: list[Any] = schema.read(result, ATTRIBUTE)
    return [cast(Record, one) for one in found]
