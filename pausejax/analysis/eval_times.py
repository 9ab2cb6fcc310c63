"""Adds the simulated time of every evaluation, so that test metrics can be plotted against it."""

import numpy as np
import xarray as xr

EVAL_ELAPSED = "eval_elapsed"
"""Name of the coordinate with the simulated time of each evaluation. It is computed from `elapsed` and
`eval_round`, and never stored."""


def with_eval_elapsed(result: xr.Dataset) -> xr.Dataset:
    """Adds to a result the coordinate `eval_elapsed` in seconds, float32 [run, eval].

    The coordinate is `elapsed` at the round of each evaluation. It is NaN if the run ended before this round.
    If the result is read lazily, the coordinate is read lazily too.

    Args:
      result: the result. It is returned unchanged if it has no `elapsed` or no evaluations, or if it already
        has `eval_elapsed`.
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
