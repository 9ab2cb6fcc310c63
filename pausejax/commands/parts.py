"""`pausejax parts`: lists the parts that a spec can name, with their parameters."""

import argparse
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from pausejax.commands import options as common

if TYPE_CHECKING:
    from pausejax.parts import Parameter, Part


def add_to(commands: Any) -> None:
    """Adds the command to the command line."""
    parser = commands.add_parser(
        "parts", help="list policies, models, data sets and other parts with their parameters"
    )
    parser.add_argument(
        "category", metavar="CATEGORY", nargs="?", help="list only parts of this category, such as policy"
    )
    parser.add_argument(
        "--use",
        action="append",
        default=[],
        metavar="FILE",
        help="file or module with your own parts; may be repeated",
    )
    parser.set_defaults(command=run)


def run(options: argparse.Namespace) -> None:
    """Prints every category of parts, with a row for each parameter of a part.

    Raises:
      SpecError: the category is unknown, or a file of --use can't be loaded.
    """
    from pausejax import kinds  # registers the package's own parts
    from pausejax.parts import CATEGORIES, registered_parts
    from pausejax.study.document import SpecError

    if options.category and options.category not in CATEGORIES:
        known = ", ".join(CATEGORIES)
        raise SpecError([f"pausejax parts: {options.category}: the category must be one of {known}"])
    # Parses a smallest study of each kind, which finds clashes between parts.
    studies = [
        kinds.parse(
            {"mode": kind.modes[0], "policy": [{"name": min(registered_parts().of(kind.policy_category))}]},
            source="pausejax parts",
            use=options.use,
            folder=Path(),
        )
        for kind in kinds.KINDS
    ]
    console = common.console()
    shown: dict[str, list[Part]] = {}
    for study in studies:
        for category in (study.kind.policy_category, *study.kind.categories, "quantity"):
            if options.category in (None, category):
                shown[category] = list(study.parts.of(category).values())
    for category, found in shown.items():
        for line in _lines(category, found):
            console.print(line)


def _lines(category: str, found: "list[Part]") -> Iterator[RenderableType]:
    """Yields the heading of a category, and each part with its parameters in aligned columns."""
    from pausejax.parts import CATEGORIES

    kind = CATEGORIES[category]
    section = f"[{kind.section}] " if kind.section else ""
    where = f"{section}{kind.key}" if kind.key else "[[policy]] name"
    yield Text(f"{category}: {kind.meaning}; {where} in a spec", style="bold")
    if not found:
        yield Text("  none is built in; a file in `use` may register some\n")
        return
    cells = {part.name: [_cells(parameter) for parameter in part.parameters.values()] for part in found}
    rows = [row for own in cells.values() for row in own]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for part in found:
        yield Padding(Text.assemble((part.name, "bold"), "  ", part.summary), (0, 0, 0, 2), expand=False)
        if cells[part.name]:
            yield Padding(_table(cells[part.name], widths), (0, 0, 0, 4), expand=False)
    yield ""


def _cells(parameter: "Parameter") -> tuple[str, ...]:
    default = f'"{parameter.default}"' if isinstance(parameter.default, str) else str(parameter.default)
    kind = "traced" if parameter.traced else "static"
    return parameter.name, default.lower(), kind, parameter.allowed()


def _table(rows: list[tuple[str, ...]], widths: list[int]) -> Table:
    table = Table.grid(padding=(0, 2))
    for width in widths[:-1]:
        table.add_column(min_width=width, no_wrap=True)
    table.add_column()
    for row in rows:
        table.add_row(*map(Text, row))
    return table
