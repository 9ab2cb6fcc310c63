"""Arguments that several commands share, and functions that parse them."""

import argparse
import math
import os
import re
from typing import TYPE_CHECKING, Any

from rich.console import Console

from pausejax.plotting import FORMATS

if TYPE_CHECKING:
    import xarray as xr

    from pausejax.study.study import Plan


def settings() -> argparse.ArgumentParser:
    """Returns a parent parser with --set, --use and --data-dir."""
    parser = argparse.ArgumentParser(add_help=False)
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="override one key of the spec, e.g. training.learning_rate=0.05 or seeds=3; may be repeated",
    )
    parser.add_argument(
        "--use",
        action="append",
        default=[],
        metavar="FILE",
        help="file (relative to the spec's folder) or module with your own parts; may be repeated",
    )
    parser.add_argument(
        "--data-dir",
        metavar="DIR",
        default=os.environ.get("PAUSEJAX_DATA_DIR"),
        help="folder of prepared data sets (default: $PAUSEJAX_DATA_DIR)",
    )
    return parser


def spec() -> argparse.ArgumentParser:
    """Returns a parent parser with the options of `settings` and the argument SPEC."""
    parser = argparse.ArgumentParser(add_help=False, parents=[settings()])
    parser.add_argument("spec", metavar="SPEC", help="the study, a TOML file")
    return parser


def quiet() -> argparse.ArgumentParser:
    """Returns a parent parser with --quiet."""
    parser = argparse.ArgumentParser(add_help=False)
    parser.add_argument("--quiet", action="store_true", help="print errors only")
    return parser


def charts() -> argparse.ArgumentParser:
    """Returns a parent parser with the options of charts, from --measure to --baseline."""
    parser = argparse.ArgumentParser(add_help=False)
    parser.add_argument(
        "--measure",
        nargs="+",
        action="extend",
        default=[],
        metavar="NAME",
        help="metrics or variables to draw: curves, heat maps and, for two or more, their Pareto front",
    )
    parser.add_argument(
        "--where",
        type=conditions,
        default={},
        metavar="KEY=VALUE,…",
        help="show only these runs, e.g. gamma=5,policy=pause; a repeated key matches each value",
    )
    parser.add_argument(
        "--by",
        type=_names,
        default=(),
        metavar="LINE,PANEL,…",
        help=(
            "up to three axes of the study: the first gives the lines, the second the columns and the third "
            "the rows of panels"
        ),
    )
    parser.add_argument(
        "--smooth",
        type=count,
        default=1,
        metavar="N",
        help="show test metrics as the mean of the last N evaluations (default 1: no smoothing)",
    )
    parser.add_argument(
        "--format",
        nargs="+",
        action="extend",
        choices=FORMATS,
        help=f"also write charts as files: {', '.join(FORMATS)} (json is Vega-Lite)",
    )
    parser.add_argument(
        "--chart",
        nargs="+",
        action="extend",
        default=[],
        metavar="NAME",
        help="write only these charts as files",
    )
    parser.add_argument(
        "--width", type=inches, metavar="INCHES", help="width of the pictures; one column of a paper is 3.5"
    )
    parser.add_argument("--height", type=inches, metavar="INCHES", help="height of the pictures")
    parser.add_argument(
        "--baseline",
        metavar="NAME",
        help="policy or setting with which all others are compared (default: the first)",
    )
    return parser


def load_plan(options: argparse.Namespace) -> "Plan":
    """Sets JAX up, and makes the plan of a spec with its overrides.

    Raises:
      SpecError: the spec has mistakes.
    """
    from pausejax.study import document

    document.read(options.spec)  # before the parts are loaded, because that takes seconds
    from pausejax import kinds
    from pausejax.execution.runtime import set_up_jax
    from pausejax.study.plan import make_plan

    set_up_jax()  # before the parts are loaded, because a part's file may make arrays
    return make_plan(kinds.load(options.spec, options.set, options.use))


def conditions(text: str) -> dict[str, list[str]]:
    """Parses KEY=VALUE,KEY=VALUE,…; a value may contain a comma unless KEY= follows the comma."""
    found: dict[str, list[str]] = {}
    for part in re.split(r",(?=[^,=]+=)", text):
        key, equals, value = part.partition("=")
        if not (equals and key.strip() and value.strip()):
            raise argparse.ArgumentTypeError(f"{part!r} must be a condition KEY=VALUE")
        found.setdefault(key.strip(), []).append(value.strip())
    return found


def _names(text: str) -> tuple[str, ...]:
    names = tuple(name.strip() for name in text.split(","))
    if not all(names):
        raise argparse.ArgumentTypeError(f"{text!r} must be a list of names: NAME,NAME")
    return names


def check_asked(result: "xr.Dataset", options: argparse.Namespace) -> None:
    """Checks that a result has all names and values in the options. It may be a plan's empty result.

    Raises:
      SpecError: a measure, axis, value or baseline is unknown.
    """
    from pausejax.page.tables import check_baseline
    from pausejax.plotting import grid, request

    try:
        runs, _ = request.resolve(result, options.measure, options.where)
        if options.by:
            grid.arrange(runs, options.by)
        check_baseline(runs, options.baseline)
    except ValueError as mistake:
        raise option_mistake(mistake) from mistake


def asked_for(options: argparse.Namespace) -> dict[str, Any]:
    """Returns the values of --measure, --where and --by as keyword arguments of `kinds.charts`."""
    return {"measures": options.measure, "where": options.where, "by": options.by}


def console() -> Console:
    """Returns a console. If the output is not a terminal, it has 140 columns, so that tables fit."""
    found = Console(highlight=False, emoji=False)
    return found if found.is_terminal else Console(highlight=False, emoji=False, width=140)


def count(text: str) -> int:
    """Parses a positive integer."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} must be an integer >= 1")
    return int(text)


def shard(text: str) -> tuple[int, int]:
    """Parses I/N, which means the I-th of N shards, and returns (I, N)."""
    number, slash, of = text.partition("/")
    if not (slash and number.isdecimal() and of.isdecimal() and 1 <= int(number) <= int(of)):
        raise argparse.ArgumentTypeError(f"{text!r} must be I/N with 1 <= I <= N")
    return int(number), int(of)


def seconds(text: str) -> float:
    """Parses a time in seconds, from 0 to 1e9."""
    return _number(text, "a time in seconds, from 0 to 1e9", 0.0)


def inches(text: str) -> float:
    """Parses a length in inches, from 0.5 to 100."""
    return _number(text, "a length in inches, from 0.5 to 100", 0.5, 100.0)


def gigabytes(text: str) -> int:
    """Parses a number of gigabytes, and returns it in bytes."""
    return int(1e9 * _number(text, "memory in gigabytes, from 0.001 to 1e9", 0.001))


def folder(text: str) -> str:
    """Checks the name of a folder or a URL, and returns the name unchanged."""
    if not text.strip():
        raise argparse.ArgumentTypeError("the name of a folder must not be empty")
    if "::" in text:
        raise argparse.ArgumentTypeError(f"{text}: must be a folder or one URL, without ::")
    return text


def _number(text: str, problem: str, least: float, most: float = 1e9) -> float:
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not (math.isfinite(number) and least <= number <= most):
        raise argparse.ArgumentTypeError(f"{text!r} must be {problem}")
    return number


def result(parser: argparse.ArgumentParser) -> None:
    """Adds the argument DIR, the folder of a result, and the option --partial."""
    parser.add_argument("directory", metavar="DIR", type=folder, help="folder that `pausejax run` wrote")
    parser.add_argument(
        "--partial", action="store_true", help="read the finished runs of a study that is still running"
    )


def opened(directory: str, *, partial: bool) -> "xr.Dataset":
    """Opens the result in a folder; with `partial`, the finished runs if the study is not finished.

    Raises:
      FileNotFoundError: the folder holds no result; with `partial`, no finished run.
      ValueError: the result is damaged.
    """
    if not partial:  # opens the result without starting JAX
        from pausejax.results import planned

        return planned.opened(directory)
    from pausejax import kinds
    from pausejax.results import unfinished

    return unfinished.read(directory, kinds.KINDS)


def partial_line(result: "xr.Dataset") -> str:
    """Returns the line that says how many runs of a partial result are finished; "" for a whole result."""
    from pausejax.analysis import schema

    line: str = schema.read(result, "partial")
    return line


def option_mistake(mistake: ValueError) -> Exception:
    """Returns a `SpecError` with the message of `mistake`, and with dashes before the option's name."""
    from pausejax.study.document import SpecError

    return SpecError([f"--{mistake}"])
