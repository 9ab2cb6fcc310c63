"""The kinds of study: the only list of them, and what needs to know it."""

import importlib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from pausejax.analysis import schema, soundness
from pausejax.clients.kind import KIND as CLIENTS
from pausejax.ensemble.kind import KIND as ENSEMBLE
from pausejax.parts import Parameter, registered_parts
from pausejax.study import spec
from pausejax.study.study import Kind, Study

if TYPE_CHECKING:
    import xarray as xr

    from pausejax.plotting.chart import Chart, Charts
    from pausejax.plotting.data import Sweep

KINDS: tuple[Kind, ...] = (CLIENTS, ENSEMBLE)
"""A spec without a `mode` is of the first."""

_TYPES = {float: "fiu", int: "iuf", bool: "b"}
"""The kinds of NumPy's types that a parameter's values may have in a result; words for all others."""

# A result of so many bytes is read once for all its charts; of a larger one each reads what it needs.
_LOADED = 1 << 29


def load(
    path: str | Path, overrides: Iterable[str] = (), use: Sequence[str] = (), *, searched: bool = False
) -> Study:
    """Reads and checks a spec file; executes the files that it uses.

    Args:
      path: a TOML file.
      overrides: `section.key=value` strings that replace or add keys; the value is TOML, or else a string.
      use: more files and modules with parts, beside those of the spec; relative to the spec's folder.
      searched: as in `spec.parse`.

    Raises:
      SpecError: the file can't be read, is no TOML, or has mistakes.
    """
    document = spec.read(path)
    return spec.parse(
        document,
        KINDS,
        source=str(path),
        overrides=overrides,
        use=use,
        folder=Path(path).parent,
        searched=searched,
    )


def parse(document: Mapping[str, Any], **options: Any) -> Study:
    """Checks a spec given as nested tables; options as in `spec.parse`.

    Raises:
      SpecError: with one line per mistake.
    """
    return spec.parse(document, KINDS, **options)


def charts(
    result: "xr.Dataset",
    *,
    measures: Sequence[str] = (),
    where: Mapping[str, Any] | None = None,
    by: Sequence[str] = (),
    smoothing: int = 1,
) -> "Charts":
    """Returns all charts that a result has the data for, by name; a notebook shows them.

    Args:
      result: as `pausejax.open` or `simulate` returns it.
      measures: metrics, or variables with a value for each round or evaluation: show these, as curves, heat
        maps, main effects and (from two on: upwards, across, in colour) their front. By default the charts
        of the study's kind.
      where: the runs to show, as in `pausejax.select`: `{"gamma": 5, "policy": "pause"}`.
      by: the axis whose values are lines, then those of columns and rows of panels, by name, alias or symbol.
      smoothing: window of the trailing mean over evaluations, in evaluations.

    Raises:
      ValueError: an unknown name, a value that no run has, or more panels than a chart has room for.
    """
    from pausejax.analysis.mean_curves import has_curve
    from pausejax.plotting import curves, grid, request, sweeps
    from pausejax.plotting.chart import Charts

    if not isinstance(smoothing, int) or smoothing < 1:
        raise ValueError(f"smoothing = {smoothing!r}: must be an integer >= 1")
    runs, wanted = request.resolve(result, measures, where)
    if runs.nbytes <= _LOADED:
        runs = runs.load()
    cells = grid.arrange(runs, by)
    found: list[Chart] = []
    if not wanted:
        found = [] if cells is None else _charts_of(runs).charts(runs, cells, smoothing=smoothing)
        more = sweeps.sweep_charts(runs) if grid.is_many(runs) else {}
        return Charts({chart.name: chart for chart in found} | more)
    for metric in wanted:
        if cells is not None and has_curve(runs, metric):
            clocks = curves.clocks_of(runs)
            found += [curves.curves(cells, metric, against, smoothing=smoothing) for against in clocks]
    return Charts({chart.name: chart for chart in found} | sweeps.charts_of(runs, wanted))


def omitted(
    result: "xr.Dataset",
    *,
    measures: Sequence[str] = (),
    where: Mapping[str, Any] | None = None,
    by: Sequence[str] = (),
) -> list[str]:
    """Lists what `charts` with the same arguments omits, why, and how to ask for it: one line each."""
    from pausejax.plotting import grid, request

    runs, wanted = request.resolve(result, measures, where)
    cells = grid.arrange(runs, by)
    lines = request.omitted(runs, wanted, cells)
    if wanted or cells is None:  # none of the kind's own charts are there
        return lines
    return [*_charts_of(runs).omitted(runs, cells), *lines]


def sweep_table(result: "xr.Dataset") -> "Sweep | None":
    """Returns every setting of a large sweep with its parameters and metrics; None for a small study."""
    from pausejax.plotting import grid, sweeps

    return sweeps.sweep_table(result) if grid.is_many(result) else None


def with_units(result: "xr.Dataset") -> "xr.Dataset":
    """Adds to the labels of parameters the units that the register knows and the result does not say.

    What an older release has left says none. No value is read.
    """
    kind = next((kind for kind in KINDS if kind.name == result.attrs.get("kind")), None)
    found = {}
    for name, parameter in (_parameters_of(kind) if kind else {}).items():
        if parameter.units and name in result.coords and "units" not in result.variables[name].attrs:
            found[name] = result.variables[name].copy(deep=False)
            found[name].attrs["units"] = parameter.units
    return result.assign_coords(found)


def _charts_of(result: "xr.Dataset") -> ModuleType:
    """The module with the charts of the kind of study that a result is of.

    Raises:
      ValueError: no kind leaves such a result.
    """
    name = schema.read(result, "kind")
    kind = next((kind for kind in KINDS if kind.name == name), None)
    if kind is None:
        raise ValueError(
            f"result: attribute kind: must be one of {', '.join(k.name for k in KINDS)}, not {name}"
        )
    if len(schema.read(result, "objectives")) != 3:
        raise ValueError("result: attribute objectives: must be three of its metrics")
    known = importlib.import_module(f"pausejax.{kind.name}.variables").VARIABLES
    charts: ModuleType = importlib.import_module(f"pausejax.{kind.name}.charts")
    layout = {name: ("run", *variable.dims) for name, variable in known.items()}
    types = {name: _TYPES.get(one.kind, "U") for name, one in _parameters_of(kind).items()}
    soundness.check_layout(result, layout, types, charts.DRAWN)
    return charts


def _parameters_of(kind: Kind) -> dict[str, Parameter]:
    """The parameters of a kind and of every part that is registered, by name."""
    found = dict(kind.parameters)
    for category in (*kind.categories, kind.policy_category):
        for part in registered_parts().of(category).values():
            found |= part.parameters
    return found
