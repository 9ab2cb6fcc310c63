"""Arguments that several commands share, and how they are read."""

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
    """--set, --use and --data-dir."""
    parser = argparse.ArgumentParser(add_help=False)
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="override one key, e.g. training.learning_rate=0.05 or seeds=3; may be repeated",
    )
    parser.add_argument(
        "--use",
        action="append",
        default=[],
        metavar="FILE",
        help="a file or module with parts of your own, from the spec's folder on; may be repeated",
    )
    parser.add_argument(
        "--data-dir",
        metavar="DIR",
        default=os.environ.get("PAUSEJAX_DATA_DIR"),
        help="folder of prepared data sets (default: $PAUSEJAX_DATA_DIR)",
    )
    return parser


def spec() -> argparse.ArgumentParser:
    """The same with SPEC."""
    parser = argparse.ArgumentParser(add_help=False, parents=[settings()])
    parser.add_argument("spec", metavar="SPEC", help="the study, a TOML file")
    return parser


def quiet() -> argparse.ArgumentParser:
    """--quiet."""
    parser = argparse.ArgumentParser(add_help=False)
    parser.add_argument("--quiet", action="store_true", help="print errors only")
    return parser


def charts() -> argparse.ArgumentParser:
    """--measure, --where, --by, --smooth; --format, --width, --height, --chart, --baseline."""
    parser = argparse.ArgumentParser(add_help=False)
    parser.add_argument(
        "--measure",
        nargs="+",
        action="extend",
        default=[],
        metavar="NAME",
        help="show these metrics or variables: curves, heat maps and, from two on, their front",
    )
    parser.add_argument(
        "--where",
        type=conditions,
        default={},
        metavar="KEY=VALUE,…",
        help="show these runs alone, e.g. gamma=5,policy=pause; a key given twice has both values",
    )
    parser.add_argument(
        "--by",
        type=_names,
        default=(),
        metavar="LINE,PANEL,…",
        help="the axis whose values are lines, then those that are columns and rows of panels",
    )
    parser.add_argument(
        "--smooth",
        type=count,
        default=1,
        metavar="N",
        help="show accuracy as the mean of the last N evaluations (default 1: as measured)",
    )
    parser.add_argument(
        "--format",
        nargs="+",
        choices=FORMATS,
        help=f"also write charts as files: {', '.join(FORMATS)} (json is Vega-Lite)",
    )
    parser.add_argument(
        "--chart", nargs="+", default=[], metavar="NAME", help="write these charts alone as files"
    )
    parser.add_argument(
        "--width", type=inches, metavar="INCHES", help="of pictures; a column of a paper has 3.5"
    )
    parser.add_argument("--height", type=inches, metavar="INCHES", help="of pictures")
    parser.add_argument(
        "--baseline", metavar="NAME", help="the policy that differences are taken from (default: the first)"
    )
    return parser


def load_plan(options: argparse.Namespace) -> "Plan":
    """The plan of a spec with its overrides.

    Raises:
      SpecError: the spec has mistakes.
    """
    from pausejax.study import document

    document.read(options.spec)  # before the parts are loaded, which takes seconds
    from pausejax import kinds
    from pausejax.study.plan import make_plan

    return make_plan(kinds.load(options.spec, options.set, options.use))


def conditions(text: str) -> dict[str, list[str]]:
    """KEY=VALUE, any number of them; a value may have commas where no key follows."""
    found: dict[str, list[str]] = {}
    for part in re.split(r",(?=[^,=]+=)", text):
        key, equals, value = part.partition("=")
        if not (equals and key.strip() and value.strip()):
            raise argparse.ArgumentTypeError(f"{part!r} is no condition: KEY=VALUE")
        found.setdefault(key.strip(), []).append(value.strip())
    return found


def _names(text: str) -> tuple[str, ...]:
    names = tuple(name.strip() for name in text.split(","))
    if not all(names):
        raise argparse.ArgumentTypeError(f"{text!r} is no list of names: NAME,NAME")
    return names


def check_asked(result: "xr.Dataset", options: argparse.Namespace) -> None:
    """Sees to it that what is to be drawn can be drawn of a result, or will be of its outline.

    Raises:
      SpecError: an unknown measure, axis or value.
    """
    from pausejax.page.tables import check_baseline
    from pausejax.plotting import request

    try:
        request.resolve(result, **asked_for(options))
        check_baseline(result, options.baseline)
    except ValueError as mistake:
        raise option_mistake(mistake) from mistake


def asked_for(options: argparse.Namespace) -> dict[str, Any]:
    """What --measure, --where and --by ask for."""
    return {"measures": options.measure, "where": options.where, "by": options.by}


def console() -> Console:
    """Wide enough for the tables where the output is no terminal."""
    found = Console(highlight=False, emoji=False)
    return found if found.is_terminal else Console(highlight=False, emoji=False, width=140)


def count(text: str) -> int:
    """An integer from 1."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is no count: an integer >= 1")
    return int(text)


def shard(text: str) -> tuple[int, int]:
    """I/N."""
    number, slash, of = text.partition("/")
    if not (slash and number.isdecimal() and of.isdecimal() and 1 <= int(number) <= int(of)):
        raise argparse.ArgumentTypeError(f"{text!r} is no share: I/N with 1 <= I <= N")
    return int(number), int(of)


def seconds(text: str) -> float:
    """A time."""
    return _number(text, "no time: seconds from 0 to 1e9", 0.0)


def inches(text: str) -> float:
    """A length on paper."""
    return _number(text, "no length: inches from 0.5 to 100", 0.5, 100.0)


def gigabytes(text: str) -> int:
    """An amount of memory, in bytes."""
    return int(1e9 * _number(text, "no amount of memory: gigabytes from 0.001 to 1e9", 0.001))


def folder(text: str) -> str:
    """A folder or a URL, as it is; the empty name is none."""
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
        raise argparse.ArgumentTypeError(f"{text!r} is {problem}")
    return number


def result(parser: argparse.ArgumentParser) -> None:
    """Adds the folder of a result."""
    parser.add_argument("directory", metavar="DIR", type=folder, help="a folder that `pausejax run` wrote")


def option_mistake(mistake: ValueError) -> Exception:
    """A mistake in an option, as a user reads it."""
    from pausejax.study.document import SpecError

    return SpecError([f"--{mistake}"])
