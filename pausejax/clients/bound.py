"""Theorem 3's bound (17) for the runs of a result."""

from collections.abc import Mapping
from functools import partial

import jax
import numpy as np
import xarray as xr

from pausejax import network, parts, regret
from pausejax.analysis.settings import group, runs_table

_WEIGHTS = ("generalization_weight", "privacy_weight")


def regret_bound_of(runs: xr.Dataset) -> np.ndarray | None:
    """Theorem 3's bound (17) that some runs share, [round]; None: their settings have several bounds."""
    table = runs_table(runs).drop(columns=["policy", "seed"])
    first = group(table, list(table.columns))[1]
    bounds = [_bound_of(runs.isel(run=place)) for place in first]
    shared = all(np.array_equal(bounds[0], other, equal_nan=True) for other in bounds)
    return bounds[0] if shared else None


def _bound_of(run: xr.Dataset) -> np.ndarray:
    """The bound of one run, [round]; δ is the smallest gap in μ.

    NaN where a result does not hold all that the run's law is made of.
    """
    part = parts.registered_parts().of("latency").get(str(run["latency"].values))
    # A result holds neither what is in a file nor the size of a model, and a law of one's own may be unknown.
    files = part and any(parameter.kind is parts.File for parameter in part.parameters.values())
    if part is None or files or any(name not in run for name in part.given):
        return np.full(run.sizes["round"], np.nan)
    law = parts.bind(part, {name: run[name].item() for name in part.reads if name in run}, ["min_latency"])
    values = {name: float(run[name]) for name in {*law.traced, "min_latency", *_WEIGHTS} if name in run}
    if not {"min_latency", *_WEIGHTS} <= values.keys():
        return np.full(run.sizes["round"], np.nan)
    sizes = (int(run["num_clients"]), int(run["clients_per_round"]))
    if not 1 <= sizes[1] <= sizes[0] <= run.sizes["client"]:
        return np.full(run.sizes["round"], np.nan)
    return np.asarray(_bound(law, *sizes, values, np.float32(run["round"].values)))


@partial(jax.jit, static_argnums=(0, 1, 2))
def _bound(
    law: parts.Bound, num_clients: int, m: int, values: Mapping[str, jax.Array], rounds: jax.Array
) -> jax.Array:
    floor = values["min_latency"]
    mu = network.expected_reward(network.floored(law.build(**values), floor), floor)
    largest = regret.gap_bound(mu, *(values[name] for name in _WEIGHTS))
    return regret.regret_bound(rounds, num_clients, m, largest, regret.smallest_gap(mu))
