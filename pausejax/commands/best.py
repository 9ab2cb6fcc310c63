"""`pausejax best`: prints the best setting of a result, and its difference from the runner-up."""

import argparse
import math
from typing import TYPE_CHECKING, Any

from pausejax.commands import options as common

if TYPE_CHECKING:
    import xarray as xr

    from pausejax.analysis.choice import Verdict
    from pausejax.analysis.quantities import Metric


def add_to(commands: Any) -> None:
    """Adds the command to the command line."""
    parser = commands.add_parser(
        "best", help="print the best setting, and its difference from the second best with an interval"
    )
    common.result(parser)
    parser.add_argument(
        "--metric",
        metavar="NAME",
        default="",
        help="metric of a run, e.g. cumulative_pseudo_regret (default: the one that ranks the study's table)",
    )
    parser.add_argument(
        "--where",
        type=common.conditions,
        default={},
        metavar="KEY=VALUE,…",
        help="compare only these runs, e.g. policy=pause,gamma=5; a repeated key matches each value",
    )
    parser.add_argument(
        "--per",
        metavar="NAME",
        action="append",
        default=[],
        help="print the best of each policy (NAME = policy), or of each value of an axis; may be repeated",
    )
    parser.set_defaults(command=run)


def run(options: argparse.Namespace) -> None:
    """Prints the best setting with its interval and its paired difference from the runner-up.

    Raises:
      SpecError: a metric, name or value is unknown, or the metric can't compare the settings.
    """
    from pausejax.analysis import metrics_of, schema, select
    from pausejax.analysis.choice import verdict
    from pausejax.analysis.comparing import UnlikeMeaning
    from pausejax.analysis.per_run import with_divergence
    from pausejax.analysis.selecting import written
    from pausejax.study.document import SpecError

    result = common.opened(options.directory, partial=options.partial)
    metric = options.metric or schema.read(result, "ranking")
    try:
        figures = select(with_divergence(result, [metric]).load(), options.where)
        found = [verdict(part, metric) for part in _parts(figures, options.per)]
    except UnlikeMeaning as mistake:
        name, value = mistake.parameter, written(mistake.value)
        each = f", or the best of each value, --per {name}" if mistake.is_axis else ""
        way_out = f"Choose one value, --where {name}={value}{each}"
        raise SpecError([f"{mistake.problem}. {way_out}"]) from mistake
    except ValueError as mistake:
        raise SpecError([str(mistake)]) from mistake
    _print(found, metrics_of(result)[metric], figures)


def _parts(figures: "xr.Dataset", per: list[str]) -> "list[xr.Dataset]":
    """Splits the runs of `figures` by the values of the axes in `per`, in order of first appearance."""
    import numpy as np

    from pausejax.analysis.settings import full_names, group_by

    codes, first = group_by(figures, full_names(figures, per, "--per"))
    return [figures.isel(run=np.flatnonzero(codes == code)) for code in codes[first]]


def _print(found: "list[Verdict]", metric: "Metric", runs: "xr.Dataset") -> None:
    from pausejax.analysis.metrics import direction

    console = common.console()
    better = "higher" if direction(runs, found[0].metric, None) else "lower"
    unit = "%" if metric.scale == 100 else metric.units if metric.scale == 1 else f"{1 / metric.scale:g}"
    named = metric.meaning if unit == "1" else f"{metric.meaning}, {unit}"
    lines = [f"{named}: {better} is better; mean (95 % interval) over the seeds"]
    if partial := common.partial_line(runs):
        lines.insert(0, partial)
    for one in found:
        lines += [f"  {line}" for line in _lines(one, metric)]
    if max(one.settings for one in found) > 2:
        lines.append(
            "The best of many settings is partly luck. Run it again with fresh seeds before you report it."
        )
    for line in lines:
        console.print(line, markup=False, soft_wrap=True)


def _lost(setting: "xr.Dataset") -> str:
    """Returns a text with the numbers of runs, or of pairs of runs, that diverged or have no value; "" if
    none."""
    diverged, left_out = int(setting.get("diverged", 0)), int(setting["left_out"])
    of = f"of {int(setting['runs'])} {'pairs' if 'policy_a' in setting.attrs else 'runs'}"
    if diverged:
        return f"; {diverged} {of} diverged"
    return f"; {left_out} {of} have no value and are left out" if left_out else ""


def _lines(found: "Verdict", metric: "Metric") -> list[str]:
    from pausejax.analysis.quantities import format_number
    from pausejax.analysis.settings import seeds_in_words

    def written(setting: "xr.Dataset") -> str:
        mean, low, high = (metric.scale * float(setting[name]) for name in ("mean", "low", "high"))
        figures = [format_number(number, metric.shown) for number in (mean, low, high)]
        interval = "" if math.isnan(low) else f" ({figures[1]} to {figures[2]})"
        return f"{figures[0]}{interval}{_lost(setting)}"

    def over(setting: "xr.Dataset") -> str:
        """Returns a setting's number of seeds in words; "" if the best setting and the runner-up have equally
        many."""
        unequal = found.runner_up is not None and int(found.best["seeds"]) != int(found.runner_up["seeds"])
        return f"; {seeds_in_words([int(setting['seeds'])])}" if unequal else ""

    of = f"best of {found.settings}" if found.settings > 1 else "the only setting"
    if lacking := found.without_value:
        of = f"best of {found.settings} ({lacking} more have no value)"
    lines = [f"{of}: {found.best['label'].item()}: {written(found.best)}{over(found.best)}"]
    if found.runner_up is None:
        return lines
    lines.append(
        f"runner-up: {found.runner_up['label'].item()}: {written(found.runner_up)}{over(found.runner_up)}"
    )
    if found.difference is None:
        return [*lines, "no paired difference, because these two settings have no seed in common"]
    low, high = float(found.difference["low"]), float(found.difference["high"])
    apart = "the interval excludes 0" if low > 0 or high < 0 else "the interval includes 0"
    apart = "one seed gives no interval" if math.isnan(low) else apart
    pairs = int(found.difference["count"])
    seeds = f"{pairs} seed{'' if pairs == 1 else 's'}"
    return [*lines, f"difference, paired by {seeds}: {written(found.difference)}; {apart}"]
