"""Theorem 3's bound (17) for the runs of a result."""

import jax.numpy as jnp
import numpy as np
import xarray as xr

from pausejax import network, regret
from pausejax.parts import File, everything


def regret_bound_of(runs: xr.Dataset) -> np.ndarray:
    """Theorem 3's bound (17) for the setting of some runs, [round]; δ is the smallest gap in μ."""
    run = runs.isel(run=0)
    part = everything().of("latency").get(str(run["latency"].values))
    # What is in a file is not part of a result, and a law of one's own may be unknown here.
    if part is None or any(parameter.kind is File for parameter in part.parameters.values()):
        return np.full(runs.sizes["round"], np.nan)
    values = {name: run[name].item() for name in part.reads if name in run}
    floor = float(run["min_latency"])
    mu = network.expected_reward(network.floored(part.build(**values), floor), floor)
    largest = regret.gap_bound(mu, float(run["generalization_weight"]), float(run["privacy_weight"]))
    bound = regret.regret_bound(
        jnp.asarray(runs["round"].values),
        int(run["num_clients"]),
        int(run["clients_per_round"]),
        largest,
        regret.smallest_gap(mu),
    )
    return np.asarray(bound)
