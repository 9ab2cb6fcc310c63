"""Arguments that several commands share, and how they are read."""

import argparse
import math
import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console

if TYPE_CHECKING:
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


def drawing() -> argparse.ArgumentParser:
    """--smooth."""
    parser = argparse.ArgumentParser(add_help=False)
    parser.add_argument(
        "--smooth",
        type=count,
        default=1,
        metavar="N",
        help="draw accuracy as the mean of the last N evaluations (default 1: as measured)",
    )
    return parser


def load_plan(options: argparse.Namespace) -> "Plan":
    """The plan of a spec with its overrides.

    Raises:
      SpecError: the spec has mistakes.
    """
    from pausejax.study import spec

    spec.read(options.spec)  # before the parts are loaded, which takes seconds
    from pausejax import kinds
    from pausejax.study.plan import make_plan

    return make_plan(kinds.load(options.spec, options.set, options.use))


def console() -> Console:
    """Wide enough for the tables where the output is no terminal."""
    found = Console(highlight=False)
    return found if found.is_terminal else Console(highlight=False, width=120)


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


def _number(text: str, problem: str, least: float) -> float:
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not (math.isfinite(number) and least <= number <= 1e9):
        raise argparse.ArgumentTypeError(f"{text!r} is {problem}")
    return number


def result(parser: argparse.ArgumentParser) -> None:
    """Adds the folder of a result."""
    parser.add_argument("directory", metavar="DIR", type=folder, help="a folder that `pausejax run` wrote")


def draw(directory: str, options: argparse.Namespace) -> None:
    """Draws the result in a folder and says what there is."""
    from pausejax import kinds
    from pausejax.report import save
    from pausejax.results import store
    from pausejax.results.folder import Folder

    figures, folder = kinds.draw(store.read(directory), smoothing=options.smooth), Folder(directory)
    if folder.is_local:
        paths = save(figures, Path(folder.path()))
    else:
        with tempfile.TemporaryDirectory() as beside:
            paths = save(figures, Path(beside))
            for path in paths:
                folder.write(path.name, path.read_bytes())
    if not options.quiet:
        names = sorted({path.stem for path in paths})
        console().print(f"pictures in {directory} (PNG and PDF): {', '.join(names)}", markup=False)
