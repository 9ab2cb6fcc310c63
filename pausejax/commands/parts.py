"""`pausejax parts`: everything that a spec can name, with its parameters."""

import argparse
from pathlib import Path
from typing import Any

from rich import box
from rich.table import Table
from rich.text import Text

from pausejax.commands import options as common


def add_to(commands: Any) -> None:
    """Adds the command to the command line."""
    parser = commands.add_parser("parts", help="list policies, models, data sets … with their parameters")
    parser.add_argument("category", metavar="KIND", nargs="?", help="only parts of one kind, as policy")
    parser.add_argument(
        "--use",
        action="append",
        default=[],
        metavar="FILE",
        help="a file or module with parts of your own; may be repeated",
    )
    parser.set_defaults(command=run)


def run(options: argparse.Namespace) -> None:
    """Prints a table for each category of parts.

    Raises:
      SpecError: there is no such category, or a file can't be used.
    """
    from pausejax import kinds  # registers the package's own
    from pausejax.parts import CATEGORIES, everything
    from pausejax.study.spec import SpecError

    if options.category and options.category not in CATEGORIES:
        known = ", ".join(CATEGORIES)
        raise SpecError([f"{options.category}: is no kind of part; there are {known}"])
    # As the smallest study of each kind would have it: clashes are found here already.
    studies = [
        kinds.parse(
            {"mode": kind.modes[0], "policy": [{"name": min(everything().of(kind.policies))}]},
            source="pausejax parts",
            use=options.use,
            folder=Path(),
        )
        for kind in kinds.KINDS
    ]
    console = common.console()
    for study in studies:
        for category in (study.kind.policies, *study.kind.categories):
            if options.category in (None, category):
                console.print(_table(study.parts, category))


def _table(parts: Any, category: str) -> Table:
    from pausejax.parts import CATEGORIES

    kind = CATEGORIES[category]
    where = f"[{kind.section}] {kind.key}" if kind.key else "[[policy]] name"
    table = Table(
        title=Text(f"{category}: {kind.meaning} ({where} in a spec)"),
        title_justify="left",
        box=box.SIMPLE_HEAD,
    )
    for heading in ("name", "what it is", "own parameters", "allowed"):
        table.add_column(heading, overflow="fold")
    for part in parts.of(category).values():
        own = list(part.parameters.values())
        table.add_row(
            Text(part.name),
            Text(part.summary),
            Text("\n".join(f"{p.name} = {p.default!r}{' (traced)' if p.traced else ''}" for p in own)),
            Text("\n".join(p.allowed() for p in own)),
        )
    return table
