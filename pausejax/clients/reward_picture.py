"""The generalization reward (8) over several β: Fig. 1 of the PAUSE paper."""

import jax.numpy as jnp
import numpy as np
import xarray as xr
from matplotlib.axes import Axes

from pausejax import bandit
from pausejax.analysis import schema
from pausejax.report.curves import Curve, figure
from pausejax.report.figure import Figure
from pausejax.report.grid import Grid, Panel
from pausejax.report.statistics import Line


def draw(result: xr.Dataset) -> dict[str, Figure]:
    """The generalization reward, where a result has several β for one K and m; else nothing."""
    axes = schema.read(result, "axes")
    if "generalization_exponent" not in axes or {"num_clients", "clients_per_round"} & set(axes):
        return {}
    exponents = result["generalization_exponent"].values
    values = np.unique(exponents[np.isfinite(exponents)])
    lines = [Line(f"β = {beta:g}", "", result.isel(run=np.flatnonzero(exponents == beta))) for beta in values]
    return {"generalization_reward": figure(generalization_reward, Grid((Panel("", tuple(lines)),), 1))}


def generalization_reward(axes: Axes, curves: list[Curve]) -> None:
    """(8) of clients with equal data against their share of the rounds, as the paper's Fig. 1."""
    share = jnp.linspace(0, 1, 401)
    for curve in curves:
        runs = curve.runs.isel(run=0)
        equal = jnp.full(share.size, 1 / int(runs["num_clients"]))
        reward = bandit.generalization(
            share,
            jnp.float32(1),
            equal,
            int(runs["clients_per_round"]),
            float(runs["generalization_exponent"]),
        )
        axes.plot(share, np.asarray(reward), label=curve.label, **curve.look.on_line())
    axes.set(xlabel="share of the rounds, Tₖ(t)/t", ylabel="generalization reward gₖ(t)")
