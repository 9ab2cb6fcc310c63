"""Lists the kinds of study, and defines the functions that depend on the list."""

import importlib
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from pausejax.analysis import schema, soundness
from pausejax.clients.kind import KIND as CLIENTS
from pausejax.clients.variables import KEPT
from pausejax.ensemble.kind import KIND as ENSEMBLE
from pausejax.parts import Parameter, registered_parts
from pausejax.study import spec
from pausejax.study.study import Kind, Study

if TYPE_CHECKING:
    import xarray as xr

    from pausejax.clients.models import KeptModel
    from pausejax.plotting.chart import Chart, Charts
    from pausejax.plotting.data import Sweep

KINDS: tuple[Kind, ...] = (CLIENTS, ENSEMBLE)
"""The kinds of study. A spec without a `mode` belongs to the first kind."""

_TYPES = {float: "fiu", int: "iuf", bool: "b"}
"""Maps a parameter's Python type to the NumPy kinds that its coordinate may have.

Other parameters are text.
"""

# Results up to this size in bytes are read once for all charts. From a larger result, each chart reads the
# variables that it draws.
_LOADED = 1 << 29


def load(
    path: str | Path, overrides: Iterable[str] = (), use: Sequence[str] = (), *, searched: bool = False
) -> Study:
    """Reads and checks a spec file. The files in its key `use` are executed.

    Args:
      path: a TOML file.
      overrides: strings `section.key=value` that replace or add keys. A value that is not TOML is a string.
      use: further files and modules with parts. Relative paths start at the spec's folder.
      searched: whether a search chooses the values in ranges, so that the spec needs no [sampling].

    Raises:
      SpecError: the file can't be read, is not TOML, or has mistakes.
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
    """Checks a spec that is given as nested tables, and returns its study.

    The options, such as `overrides`, are those of `study.spec.parse`.

    Raises:
      SpecError: the spec has mistakes; the message has one line for each mistake.
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
    """Returns the charts for which a result has data, by name; a notebook displays them.

    Args:
      result: as `pausejax.open` or `simulate` returns it.
      measures: names of metrics, or of variables with a value for each round or evaluation. They are shown as
        curves, heat maps and main effects. For two or more, there is also a Pareto front. The first is on the
        y axis, the second on the x axis, and the third is the colour. Default: the charts of the study's
        kind.
      where: values that the shown runs have, by parameter: `{"gamma": 5, "policy": "pause"}`.
      by: up to three axes, by name, alias or symbol. They distinguish lines, columns of panels and rows of
        panels, in this order.
      smoothing: number of evaluations that the trailing mean averages.

    Raises:
      ValueError: a name is unknown, no run has a value of `where`, or there are too many lines or panels.
    """
    from pausejax.analysis.mean_curves import has_curve
    from pausejax.plotting import curves, grid, request, sweeps
    from pausejax.plotting.chart import Charts

    if not isinstance(smoothing, int) or smoothing < 1:
        raise ValueError(f"smoothing = {smoothing!r}: must be an integer >= 1")
    # No chart shows the weights of models, which may be the largest part of a result.
    runs, wanted = request.resolve(result.drop_vars(KEPT, errors="ignore"), measures, where)
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


def models(
    result: "xr.Dataset", *, folder: str | Path = ".", data_dir: str | Path | None = None
) -> "list[KeptModel]":
    """Returns the final model of every run of a result that was simulated with `keep_models = true`.

    The network is built from the spec in the result, and the data set is loaded for its shapes and its mean
    and standard deviation. All weights are read into memory; select runs first if that is too much. The files
    of `use` are executed.

    Args:
      result: as `pausejax.open` or `simulate` returns it, or a selection of its runs.
      folder: the folder of the spec, from which relative paths of data files and of `use` start.
      data_dir: folder of prepared data sets.

    Returns:
      A `KeptModel` for each run, in the order of the runs: its `apply` is a pure function `(weights,
      inputs)`, and its `weights` are a pytree. Its `clients` are the weights of each client, leaves [K, ...],
      if clients have weights of their own, else None.

    Raises:
      SpecError: (a ValueError) a file of the spec is absent, or the model can't be built.
      ValueError: the result keeps no models, or a file on which its runs depend has changed.
    """
    from pausejax.clients.models import models as of_study
    from pausejax.data.host import DataCache

    if "final_model" not in result:
        raise ValueError("result: has no models. Only a study with keep_models = true stores them")
    document = tomllib.loads(schema.read(result, "spec"))
    study = parse(document, source="spec of the result", folder=Path(folder))
    return of_study(study, result, DataCache(data_dir))


def omitted(
    result: "xr.Dataset",
    *,
    measures: Sequence[str] = (),
    where: Mapping[str, Any] | None = None,
    by: Sequence[str] = (),
) -> list[str]:
    """Returns lines that say what `charts` omits with the same arguments, why, and how to show it."""
    from pausejax.plotting import grid, request

    runs, wanted = request.resolve(result, measures, where)
    cells = grid.arrange(runs, by)
    lines = request.omitted(runs, wanted, cells)
    if wanted or cells is None:  # `charts` then omits the charts of the kind of study
        return lines
    return [*_charts_of(runs).omitted(runs, cells), *lines]


def sweep_table(result: "xr.Dataset") -> "Sweep | None":
    """Returns every setting of a large sweep with its parameters and metrics; None for a small study."""
    from pausejax.plotting import grid, sweeps

    return sweeps.sweep_table(result) if grid.is_many(result) else None


def with_units(result: "xr.Dataset") -> "xr.Dataset":
    """Adds missing units to the coordinates of parameters, as registered with the parameters.

    Results of older releases contain no units of parameters. The values of variables are not read.
    """
    kind = next((kind for kind in KINDS if kind.name == result.attrs.get("kind")), None)
    found = {}
    for name, parameters in (_parameters_of(kind) if kind else {}).items():
        unit, *others = {parameter.units for parameter in parameters}
        if unit and not others and name in result.coords and "units" not in result.variables[name].attrs:
            found[name] = result.variables[name].copy(deep=False)
            found[name].attrs["units"] = unit
    return result.assign_coords(found)


def _charts_of(result: "xr.Dataset") -> ModuleType:
    """Returns the module with the charts for a result's kind of study.

    Raises:
      ValueError: the result does not have the attributes or variables of any kind.
    """
    name = schema.read(result, "kind")
    kind = next((kind for kind in KINDS if kind.name == name), None)
    if kind is None:
        raise ValueError(
            f"result: attribute kind: must be one of {', '.join(k.name for k in KINDS)}, not {name}"
        )
    if len(schema.read(result, "objectives")) != 3:
        raise ValueError("result: attribute objectives: must name three metrics of the result")
    known = importlib.import_module(f"pausejax.{kind.name}.variables").VARIABLES
    charts: ModuleType = importlib.import_module(f"pausejax.{kind.name}.charts")
    layout = {name: ("run", *variable.dims) for name, variable in known.items()}
    types = {
        name: "".join(_TYPES.get(one.kind, "U") for one in parameters)
        for name, parameters in _parameters_of(kind).items()
    }
    soundness.check_layout(result, layout, types, charts.DRAWN)
    return charts


def _parameters_of(kind: Kind) -> dict[str, list[Parameter]]:
    """Returns the parameters of a kind, and of every registered part that it can use, by name.

    Parts that no study uses together may define one name differently.
    """
    found = {name: [parameter] for name, parameter in kind.parameters.items()}
    for category in (*kind.categories, kind.policy_category):
        for part in registered_parts().of(category).values():
            for name, parameter in part.parameters.items():
                found.setdefault(name, []).append(parameter)
    return found
