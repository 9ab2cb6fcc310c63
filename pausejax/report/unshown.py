"""What the pictures of a result do not show, and how to ask for it: one line each."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import xarray as xr

from pausejax.analysis import finals, metrics_of
from pausejax.analysis.comparing import unlike
from pausejax.analysis.quantities import parameters_in
from pausejax.analysis.selecting import some, written
from pausejax.report import asked
from pausejax.report.grid import arrange, factors, for_lines, is_many, words_for
from pausejax.report.heatmaps import MAX_AXES
from pausejax.report.levels import Measure, levels_of, measures_of
from pausejax.report.series import has_curve


def left_out(
    result: xr.Dataset,
    *,
    measures: Sequence[str] = (),
    where: Mapping[str, Any] | None = None,
    by: Sequence[str] = (),
) -> list[str]:
    """One line for each thing that a picture of a result leaves out, with the way to ask for it.

    Args:
      result: as `pausejax run` writes it.
      measures: as for `pausejax.kinds.draw`.
      where: the same.
      by: the same.
    """
    runs, wanted = asked.chosen(result, measures, where, by)
    lines = [*_curves(runs, by), *_without_a_number(runs, wanted or measures_of(runs))]
    if not wanted:
        return [*lines, *_unasked(runs)]
    for measure in wanted:
        if not np.isfinite(finals(runs, [measure.name])[measure.name].values).any():
            lines.append(f"{measure.name}: no run has a finite value")
        elif not has_curve(runs, measure):
            lines.append(f"{measure.name}: is one figure for a run and has no curve")
    if missing := _without_heat_maps(runs):
        names = ", ".join(_short(runs, name) for name in missing)
        lines.append(f"heat maps are of {MAX_AXES} axes at most, and not of {names}; fix others by --where")
    if len(wanted) > 1 and (why := asked.ways_of(runs, wanted[:3])[1]):
        lines.append(f"no front: {why}{_fix(runs, wanted)}")
    if len(wanted) > 3:
        lines.append(f"the front weighs the first three measures, not {some(m.name for m in wanted[3:])}")
    return lines


def _curves(runs: xr.Dataset, by: Sequence[str]) -> list[str]:
    grid = arrange(runs, by)
    if grid is None:
        varying = [_short(runs, name) for name in factors(runs)]
        fix = f"fix some: --where {_example(runs)}"
        if axes := ",".join(_short(runs, name) for name in for_lines(runs)[:2]):
            fix = f"name the axes of lines and panels, the others are averaged: --by {axes}, or {fix}"
        return [f"no curves: too much varies for one grid of panels ({', '.join(varying)}); {fix}"]
    if grid.averaged:
        averaged = words_for(grid.averaged, runs)
        return [f"curves are means over {averaged} too: fix them by --where, or add them to --by"]
    return []


def _without_a_number(runs: xr.Dataset, shown: Sequence[Measure]) -> list[str]:
    """Runs that some means do not take in."""
    lines, count = [], runs.sizes["run"]
    if "diverged_round" in runs and (broken := int((runs["diverged_round"].values > 0).sum())):
        left = "what their models learned is in no mean, curve, heat map or main effect"
        lines.append(f"{broken} of {count} runs diverged: {left}")
    for name, figures in finals(runs, [measure.name for measure in shown]).data_vars.items():
        infinite = int(np.isinf(figures.values).sum())
        if 0 < infinite < count:
            left = "heat maps and main effects are means over the others"
            lines.append(f"{name}: infinite in {infinite} of {count} runs; {left}")
    return lines


def _without_heat_maps(runs: xr.Dataset) -> list[str]:
    """The axes that are beyond those which a policy's heat maps have room for."""
    found: dict[str, None] = {}
    for policy in dict.fromkeys(runs["policy"].values.tolist()):
        own = runs.isel(run=np.flatnonzero(runs["policy"].values == policy))
        found |= dict.fromkeys(levels_of(own).axes[MAX_AXES:])
    return list(found)


def _unasked(runs: xr.Dataset) -> list[str]:
    table = metrics_of(runs)
    shown = {measure.name for measure in measures_of(runs)}
    others = [name for name in table if name not in shown and table[name].reduce != "itself"]
    lines = [f"more can be drawn by --measure NAME: {some(others, 20)}"] if others else []
    if is_many(runs):
        lines.append("heat maps of a measure are drawn by --measure NAME")
        by_reason: dict[str, list[Measure]] = {}
        for measure in measures_of(runs):
            if why := asked.on_one_scale(runs, measure):
                by_reason.setdefault(why, []).append(measure)
        for why, alike in by_reason.items():
            names = [measure.name for measure in alike]
            each = "it" if len(names) == 1 else "each"
            lines.append(
                f"{', '.join(names)}: no main effects: {each} {why}{_fix(runs, alike)}; "
                f"all the same: --measure {' '.join(names)}"
            )
    return lines


def _fix(runs: xr.Dataset, wanted: Sequence[Measure]) -> str:
    differing = {n: seen[0] for measure in wanted for n, seen in unlike(runs, measure.name).items()}
    chosen = ",".join(f"{_short(runs, name)}={written(value)}" for name, value in differing.items())
    return f"; choose one: --where {chosen}" if chosen else ""


def _example(runs: xr.Dataset) -> str:
    name = next(name for name in factors(runs) if name != "policy")
    return f"{_short(runs, name)}={written(levels_of(runs).runs[name].values[0].item())}"


def _short(runs: xr.Dataset, name: str) -> str:
    """A parameter as one types it."""
    aliases, _ = parameters_in(runs).get(name, ((), ""))
    return aliases[0] if aliases else name
