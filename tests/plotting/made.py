"""Made-up results: those of the analysis tests, such with axes that are sampled, and bare runs."""

import itertools
import json

import numpy as np
import xarray as xr

from pausejax.analysis.quantities import Metric, as_json, metrics_in
from pausejax.analysis.settings import UNREAD

from ..analysis.made_up import build

__all__ = ["build", "crossed", "names", "of", "runs_of", "sampled", "series_of", "with_figures"]

SYMBOLS = {"alpha": "α", "gamma": "γ"}


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
    result = result.assign_coords({UNREAD: ("run", np.full(len(rows), ""))})
    return result, rows, last


def runs_of(rows, apart=("dataset",)):
    """A run for each row; a policy that lacks an axis has no value there."""
    names = list(dict.fromkeys(name for row in rows for name in row if name not in ("policy", "seed")))
    text = {name: isinstance(next(row[name] for row in rows if name in row), str) for name in names}
    columns = {name: [row.get(name, "" if text[name] else np.nan) for row in rows] for name in names}
    coords = {
        "policy": ("run", [row.get("policy", "a") for row in rows]),
        "seed": ("run", [row.get("seed", 0) for row in rows]),
        **{name: ("run", column) for name, column in columns.items()},
        UNREAD: ("run", [" ".join(name for name in names if name not in row) for row in rows]),
    }
    parameters = {name: ([], SYMBOLS.get(name, "")) for name in names}
    attributes = {"axes": names, "parameters": parameters, "apart": apart}
    return xr.Dataset(
        {"number": ("run", np.arange(len(rows)))},
        coords,
        {name: json.dumps(value) for name, value in attributes.items()},
    )


def crossed(**values):
    """Every combination, a run each; the first axis slowest."""
    return [dict(zip(values, point, strict=True)) for point in itertools.product(*values.values())]


def names(count, letter="p"):
    """Words, which are never cut into levels."""
    return [f"{letter}{number:02}" for number in range(count)]


def with_figures(runs, ways=None, **columns):
    """The same with figures [run] of the whole run; ways: whether more is better, of each, or of none."""
    ways = [False] * len(columns) if ways is None else ways[: len(columns)]
    metrics = {
        name: Metric(name, "itself", way, "1", "of a test") for name, way in zip(columns, ways, strict=True)
    }
    found = {name: ("run", np.asarray(column, float)) for name, column in columns.items()}
    return runs.assign(found).assign_attrs(metrics=as_json(metrics))


def of(result, *names, **changes):
    """Some metrics of a result."""
    return [metrics_in(result)[name]._replace(**changes) for name in names]


def series_of(panel):
    """The series of a panel by their labels."""
    return {one.label: one for one in panel.series}
