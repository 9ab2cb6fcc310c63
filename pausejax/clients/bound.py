"""Theorem 3's bound (17) for the runs of a result."""

import numpy as np
import xarray as xr

from pausejax import network, regret


def regret_bound_of(runs: xr.Dataset) -> np.ndarray:
    """Theorem 3's bound (17) for the setting of some runs, [round]; δ is the smallest gap in μ."""
    run = runs.isel(run=0)
    names = ("min_latency", "fast_latency", "slow_latency", "slow_range", "latency_deviation")
    law = network.make_network(int(run["num_clients"]), **{name: float(run[name]) for name in names})
    if str(run["latency"].values) == "trace":
        return np.full(runs.sizes["round"], np.nan)
    mu = network.expected_reward(str(run["latency"].values), law)
    largest = regret.gap_bound(mu, float(run["generalization_weight"]), float(run["privacy_weight"]))
    bound = regret.regret_bound(
        runs["round"].values,
        int(run["num_clients"]),
        int(run["clients_per_round"]),
        largest,
        regret.smallest_gap(mu),
    )
    return np.asarray(bound)
