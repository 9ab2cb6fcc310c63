"""Pictures of studies with more settings than lines can show: heat maps, main effects, the Pareto front."""

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
from pausejax.report.style import file_names


def draw(result: xr.Dataset) -> dict[str, Figure]:
    """All pictures but heat maps, by file name, from the runs' last figures.

    Memory does not grow with the runs. A heat map of each measure and policy would take longer than the rest.
    """
    measures = measures_of(result)
    whole = finals(result, [measure.name for measure in measures]).load()
    # A mean over unlike rewards says nothing: such measures are drawn if they are asked for.
    shown = [measure for measure in measures if not on_one_scale(_on_first(whole), measure)]
    drawn = effects(whole, shown)
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
    drawn |= effects(whole, measures) | maps(whole, measures)
    return drawn | (fronts(whole, measures[:3]) if len(measures) > 1 else {})


def effects(whole: xr.Dataset, measures: Sequence[Measure]) -> dict[str, Figure]:
    """Main effects of some figures, for each data set."""
    drawn = {}
    for ending, runs in _by_data_set(whole):
        own = [measure for measure in measures if np.isfinite(runs[measure.name].values).any()]
        drawn[f"main_effects{ending}"] = main_effects(runs, own)
    return {name: figure for name, figure in drawn.items() if figure is not None}


def maps(whole: xr.Dataset, measures: Sequence[Measure]) -> dict[str, Figure]:
    """Heat maps of some figures, for each policy and data set."""
    drawn: dict[str, Figure | None] = {}
    for ending, runs in _by_data_set(whole):
        policies = list(dict.fromkeys(runs["policy"].values.tolist()))
        names = file_names(policies) if len(policies) > 1 else [""]
        for policy, name in zip(policies, names, strict=True):
            of_policy = runs.isel(run=np.flatnonzero(runs["policy"].values == policy))
            levels = levels_of(of_policy)
            both = (f"_{name}" if name else "") + ending
            for measure in measures:
                if np.isfinite(of_policy[measure.name].values).any():
                    drawn[f"heatmap_{measure.name}{both}"] = heat_maps(levels, measure, policy)
    return {name: figure for name, figure in drawn.items() if figure is not None}


def fronts(whole: xr.Dataset, measures: Sequence[Measure]) -> dict[str, Figure]:
    """The trade-off of two or three measures (upwards, across, in colour), for each data set."""
    drawn: dict[str, Figure] = {}
    for ending, runs in _by_data_set(whole):
        if not ways_of(runs, measures)[1]:
            colour = measures[2] if len(measures) > 2 else None
            picture = trade_off(runs, measures[1], measures[0], colour)
            drawn |= {f"pareto{ending}": picture} if picture else {}
    return drawn


def _by_data_set(whole: xr.Dataset) -> list[tuple[str, xr.Dataset]]:
    """The runs of each data set, and how the names of its files end."""
    found = split(whole, [name for name in apart_in(whole) if name in axes_of(whole)])
    if not found[0][0]:
        return found
    names = file_names([title for title, _ in found])
    return [(f"_{name}", runs) for name, (_, runs) in zip(names, found, strict=True)]


def _on_first(whole: xr.Dataset) -> xr.Dataset:
    return _by_data_set(whole)[0][1]
