"""Results are alike if they differ in nothing but how they were made."""

import xarray as xr

from pausejax.analysis.made import ATTRIBUTE


def assert_alike(*results):
    first, *others = (result.assign_attrs({ATTRIBUTE: ""}) for result in results)
    for other in others:
        xr.testing.assert_identical(first, other)
