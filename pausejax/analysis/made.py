"""The attribute `made` of a result: the commands, devices and versions with which it was made."""

import json
from collections.abc import Sequence
from typing import Any, TypedDict, cast

import xarray as xr

from pausejax.analysis import schema

ATTRIBUTE = "made"


class Provenance(TypedDict):
    """The command, the devices and the versions of one process that simulated runs."""

    command: str
    """The command line as it was typed; "" if there was none."""
    devices: str
    """The number and the name of the devices, such as "2 × NVIDIA H100"."""
    versions: dict[str, str]


def with_provenance(result: xr.Dataset, processes: Sequence[Provenance]) -> xr.Dataset:
    """Returns the result with the provenance of `processes`, sorted, in its attribute `made`.

    Invalid entries are left out.
    """
    valid = [one for one in processes if not schema.problem(ATTRIBUTE, [one])]
    if not valid:
        return result
    each = sorted({json.dumps(one, sort_keys=True) for one in valid})
    return result.assign_attrs({ATTRIBUTE: f"[{', '.join(each)}]"})


def provenance_of(result: xr.Dataset) -> list[Provenance]:
    """Returns the distinct entries of a result's attribute `made`; [] for results of older releases."""
    found: list[Any] = schema.read(result, ATTRIBUTE)
    return [cast(Provenance, one) for one in found]
