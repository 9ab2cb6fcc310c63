"""The made-up results of the analysis tests, with axes that are sampled rather than gridded."""

import numpy as np

from ..analysis.made_up import build

__all__ = ["build", "sampled"]


def sampled(points, seeds, mode="training", random_seed=0):
    """One policy at random points of (α, η), log-uniform over some decades, and of m; each with all seeds."""
    rng = np.random.default_rng(random_seed)
    alpha = 10 ** rng.uniform(0, 3, points)
    axes = {"generalization_weight": "alpha", "budget_decay": "eta", "clients_per_round": "m"}
    result, rows, last = build({"pause": {"generalization_weight": alpha.tolist()}}, seeds, axes, mode)
    others = {
        "budget_decay": dict(zip(alpha, 10 ** rng.uniform(-3, 0, points), strict=True)),
        "clients_per_round": dict(zip(alpha, rng.integers(1, 40, points), strict=True)),
    }
    for name, column in others.items():
        values = ("run", np.array([column[row["generalization_weight"]] for row in rows]))
        result = result.assign_coords({name: values, axes[name]: values})
    return result, rows, last
