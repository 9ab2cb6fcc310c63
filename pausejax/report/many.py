"""Pictures of studies with more settings than lines can show: heat maps, main effects, the Pareto front."""

import re
from collections.abc import Sequence

import numpy as np
import xarray as xr

from pausejax.analysis import finals
from pausejax.analysis.quantities import apart_in, objectives_in
from pausejax.analysis.settings import axes_of
from pausejax.report.asked import on_one_scale, ways_of
from pausejax.report.curves import figure, measure_plot, scale_for
from pausejax.report.effects import main_effects
from pausejax.report.figure import Figure
from pausejax.report.grid import Grid, split
from pausejax.report.heatmaps import heat_maps
from pausejax.report.levels import Measure, levels_of, measures_of
from pausejax.report.pareto import trade_off
from pausejax.report.series import clocks_of, has_curve


def draw(result: xr.Dataset) -> dict[str, Figure]:
    """All pictures, by file name, from the runs' last figures; memory does not grow with the runs."""
    measures = measures_of(result)
    whole = finals(result, [measure.name for measure in measures]).load()
    # A mean over unlike rewards says nothing: such measures are drawn if they are asked for.
    shown = [measure for measure in measures if not on_one_scale(_on_first(whole), measure)]
    drawn = tables(whole, shown)
    wanted = {measure.name: measure for measure in measures}
    up, across, colour = objectives_in(result)
    if {up, across, colour} <= set(wanted):
        drawn |= fronts(whole, [wanted[up], wanted[across], wanted[colour]])
    return drawn


def of_measures(
    result: xr.Dataset, measures: Sequence[Measure], grid: Grid | None, smoothing: int = 1
) -> dict[str, Figure]:
    """Every picture of some measures: curves in a grid's panels, heat maps, main effects, their front."""
    drawn: dict[str, Figure] = {}
    whole = finals(result, [measure.name for measure in measures]).load()
    for measure in measures:
        if grid is not None and has_curve(result, measure):
            scale = {} if measure.share else scale_for(measure.scale * whole[measure.name].values)
            for clock in clocks_of(result):
                plot = measure_plot(measure, clock, smoothing, **scale)
                drawn[f"{measure.name}_vs_{clock}"] = figure(plot, grid)
    drawn |= tables(whole, measures)
    return drawn | (fronts(whole, measures[:3]) if len(measures) > 1 else {})


def tables(whole: xr.Dataset, measures: Sequence[Measure]) -> dict[str, Figure]:
    """Main effects and heat maps of some figures, for each data set."""
    drawn: dict[str, Figure | None] = {}
    for title, runs in _by_data_set(whole):
        own = [measure for measure in measures if np.isfinite(runs[measure.name].values).any()]
        drawn[f"main_effects{_ending(title)}"] = main_effects(runs, own)
        policies = list(dict.fromkeys(runs["policy"].values.tolist()))
        for policy in policies:
            of_policy = runs.isel(run=np.flatnonzero(runs["policy"].values == policy))
            levels = levels_of(of_policy)
            ending = _ending("" if len(policies) == 1 else policy) + _ending(title)
            for measure in own:
                if np.isfinite(of_policy[measure.name].values).any():
                    drawn[f"heatmap_{measure.name}{ending}"] = heat_maps(levels, measure, policy)
    return {name: figure for name, figure in drawn.items() if figure is not None}


def fronts(whole: xr.Dataset, measures: Sequence[Measure]) -> dict[str, Figure]:
    """The trade-off of two or three measures (upwards, across, in colour), for each data set."""
    drawn: dict[str, Figure] = {}
    for title, runs in _by_data_set(whole):
        if not ways_of(runs, measures)[1]:
            colour = measures[2] if len(measures) > 2 else None
            picture = trade_off(runs, measures[1], measures[0], colour)
            drawn |= {f"pareto{_ending(title)}": picture} if picture else {}
    return drawn


def _by_data_set(whole: xr.Dataset) -> list[tuple[str, xr.Dataset]]:
    return split(whole, [name for name in apart_in(whole) if name in axes_of(whole)])


def _on_first(whole: xr.Dataset) -> xr.Dataset:
    return _by_data_set(whole)[0][1]


def _ending(title: str) -> str:
    """A part of a file name."""
    return "_" + re.sub(r"\W+", "_", title).strip("_") if title else ""
