"""Results are alike if they differ in nothing but how they were made."""

import xarray as xr

from pausejax.analysis.made import ATTRIBUTE


def assert_alike(*results):
    first, *others = map(_without, results)
    for other in others:
        xr.testing.assert_identical(first, other)


def alike(one, other):
    return _without(one).identical(_without(other))


def _without(result):
    return result.assign_attrs({ATTRIBUTE: ""})
