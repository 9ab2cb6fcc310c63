"""Theorem 3's bound (17) for the runs of a result."""

from collections.abc import Mapping
from functools import partial

import jax
import numpy as np
import xarray as xr

from pausejax import network, parts, regret

_WEIGHTS = ("generalization_weight", "privacy_weight")


def regret_bound_of(runs: xr.Dataset) -> np.ndarray:
    """Theorem 3's bound (17) for the setting of some runs, [round]; δ is the smallest gap in μ."""
    run = runs.isel(run=0)
    part = parts.everything().of("latency").get(str(run["latency"].values))
    # What is in a file is not part of a result, and a law of one's own may be unknown here.
    if part is None or any(parameter.kind is parts.File for parameter in part.parameters.values()):
        return np.full(runs.sizes["round"], np.nan)
    law = parts.bind(part, {name: run[name].item() for name in part.reads if name in run}, ["min_latency"])
    values = {name: float(run[name]) for name in {*law.traced, "min_latency", *_WEIGHTS} if name in run}
    sizes = (int(run["num_clients"]), int(run["clients_per_round"]))
    return np.asarray(_bound(law, *sizes, values, np.float32(runs["round"].values)))


@partial(jax.jit, static_argnums=(0, 1, 2))
def _bound(
    law: parts.Bound, num_clients: int, m: int, values: Mapping[str, jax.Array], rounds: jax.Array
) -> jax.Array:
    floor = values["min_latency"]
    mu = network.expected_reward(network.floored(law.build(**values), floor), floor)
    largest = regret.gap_bound(mu, *(values[name] for name in _WEIGHTS))
    return regret.regret_bound(rounds, num_clients, m, largest, regret.smallest_gap(mu))
