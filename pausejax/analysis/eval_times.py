"""The simulated time of every evaluation, so that what was measured can stand against it."""

import numpy as np
import xarray as xr

EVAL_ELAPSED = "eval_elapsed"
"""The coordinate; it is made of `elapsed` and `eval_round` for whoever looks, and stored nowhere."""


def with_eval_elapsed(result: xr.Dataset) -> xr.Dataset:
    """Adds to a result the coordinate `eval_elapsed`, s, float32 [run, eval].

    It is `elapsed` at the round of each evaluation: NaN where a run had ended by then. Where the result is
    read lazily, so is the coordinate.

    Args:
      result: without `elapsed` or evaluations, or with a variable of this name, it stays as it is.
    """
    elapsed, evaluated = result.variables.get("elapsed"), result.variables.get("eval_round")
    if elapsed is None or evaluated is None or EVAL_ELAPSED in result.variables:
        return result
    if elapsed.dims != ("run", "round") or evaluated.dims != ("eval",) or "round" not in result.coords:
        return result
    places = xr.Variable("eval", np.searchsorted(result["round"].values, evaluated.values))
    times = elapsed.isel(round=places)
    times.attrs = {"units": elapsed.attrs.get("units", "s"), "long_name": "simulated time at the evaluation"}
    times.encoding = {}
    return result.assign_coords({EVAL_ELAPSED: times})
