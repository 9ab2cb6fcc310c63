"""Pictures of studies with more settings than lines can show: heat maps, main effects, the Pareto front."""

import re

import numpy as np
import xarray as xr

from pausejax.analysis import finals
from pausejax.analysis.quantities import objectives_in
from pausejax.analysis.settings import group, runs_table
from pausejax.report.effects import main_effects
from pausejax.report.figure import Figure
from pausejax.report.heatmaps import heat_maps
from pausejax.report.levels import levels_of, measures_of
from pausejax.report.pareto import trade_off

# More lines than this, and nobody can tell them apart.
MAX_LINES = 16


def is_many(result: xr.Dataset) -> bool:
    """Whether a result has more settings than a picture has room for lines."""
    table = runs_table(result).drop(columns="seed")
    return len(group(table, list(table.columns))[1]) > MAX_LINES


def draw(result: xr.Dataset) -> dict[str, Figure]:
    """All pictures, by file name, from the runs' last figures; memory does not grow with the runs."""
    measures = measures_of(result)
    wanted = {measure.name: measure for measure in measures}
    whole = finals(result, list(wanted)).load()
    drawn: dict[str, Figure | None] = {"main_effects": main_effects(whole, measures)}
    up, across, colour = objectives_in(result)
    if {up, across, colour} <= set(wanted):
        drawn["pareto"] = trade_off(whole, wanted[across], wanted[up], wanted[colour])
    policies = list(dict.fromkeys(whole["policy"].values.tolist()))
    for policy in policies:
        own = whole.isel(run=np.flatnonzero(whole["policy"].values == policy))
        levels = levels_of(own)
        for measure in measures:
            if np.isfinite(own[measure.name].values).any():
                ending = "" if len(policies) == 1 else "_" + re.sub(r"\W+", "_", policy).strip("_")
                drawn[f"heatmap_{measure.name}{ending}"] = heat_maps(levels, measure, policy)
    return {name: figure for name, figure in drawn.items() if figure is not None}
