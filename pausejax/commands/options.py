"""Arguments that several commands share, and how they are read."""

import argparse
import math
import os
import re
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console

if TYPE_CHECKING:
    from collections.abc import Mapping

    import xarray as xr
    from matplotlib.figure import Figure

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
    """--smooth, --measure, --where, --by."""
    parser = argparse.ArgumentParser(add_help=False)
    parser.add_argument(
        "--smooth",
        type=count,
        default=1,
        metavar="N",
        help="draw accuracy as the mean of the last N evaluations (default 1: as measured)",
    )
    parser.add_argument(
        "--measure",
        nargs="+",
        action="extend",
        default=[],
        metavar="NAME",
        help="draw these measures or variables: curves, heat maps and, from two on, their front",
    )
    parser.add_argument(
        "--where",
        type=conditions,
        default={},
        metavar="KEY=VALUE,…",
        help="draw these runs alone, e.g. gamma=5,policy=pause; a key given twice has both values",
    )
    parser.add_argument(
        "--by",
        type=_names,
        default=(),
        metavar="LINE,PANEL,…",
        help="the axis whose values are lines, then those that are columns and rows of panels",
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
    from pausejax.report import asked
    from pausejax.study.document import SpecError

    try:
        asked.chosen(result, **_asked(options))
    except ValueError as mistake:
        raise SpecError([f"--{mistake}"]) from mistake


def _asked(options: argparse.Namespace) -> dict[str, Any]:
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
    """Draws the result in a folder, writes its page, and says what there is."""
    from pausejax import kinds, page
    from pausejax.analysis import select
    from pausejax.commands import asking
    from pausejax.results import store

    result = store.read(directory)
    check_asked(result, options)
    if not any(_asked(options).values()) and draw_search(directory, quiet=options.quiet):
        return
    asked = _asked(options)
    figures = kinds.draw(result, smoothing=options.smooth, **asked)
    left_out = kinds.left_out(result, **asked)
    if any(asked.values()):
        shown = asking.in_words(options)
        whole = f"`pausejax report {directory}` draws the whole study"
        left_out.insert(0, f"this page shows what was asked for: {shown}; {whole}")
        # The page and the pictures of the whole study stay as they are.
        directory = asking.within(directory, shown)
        result = select(result, options.where)
    names = leave(directory, figures, page.build(result, figures, notes=left_out))
    if options.quiet:
        return
    out = console()
    out.print(f"pictures in {directory} (PNG and PDF): {names or 'none'}", markup=False)
    for line in left_out:
        out.print(line, markup=False)
    out.print(f"all of it on one page: {directory.rstrip('/')}/{page.NAME}", markup=False, soft_wrap=True)


def draw_search(directory: str, *, quiet: bool) -> bool:
    """Draws the search in a folder and writes its page; whether there is one.

    Raises:
      ValueError: it is damaged.
      OSError: no space left, or the like.
    """
    from pausejax import page
    from pausejax.results import store
    from pausejax.results.folder import Folder
    from pausejax.searches import report

    record = report.Record.read(Folder(directory))
    if record is None:
        return False
    figures = report.draw(record)
    best = store.read(confirmation(directory))
    names = leave(directory, figures, report.build(record, store.read(directory), best, figures))
    if not quiet:
        out = console()
        out.print(f"pictures in {directory} (PNG and PDF): {names}", markup=False)
        out.print(f"all of it on one page: {directory.rstrip('/')}/{page.NAME}", markup=False, soft_wrap=True)
    return True


def confirmation(directory: str) -> str:
    """Where the best of a search is played again."""
    return f"{directory.rstrip('/')}/confirmation"


def leave(directory: str, figures: "Mapping[str, Figure]", text: str | None = None) -> str:
    """Puts pictures and the text of a page into a folder, or under a URL; returns the pictures' names.

    Raises:
      OSError: no space left, or the like.
    """
    from pausejax import page
    from pausejax.report import save
    from pausejax.results.folder import Folder

    folder = Folder(directory)
    if folder.is_local:
        save(figures, Path(folder.path()))
    else:
        with tempfile.TemporaryDirectory() as beside:
            for path in save(figures, Path(beside)):
                folder.write(path.name, path.read_bytes())
    if text is not None:
        folder.write(page.NAME, text.encode())
    return ", ".join(sorted(figures))
