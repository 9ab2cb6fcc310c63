"""`pausejax export`: writes a result as Parquet or CSV, without executing the user's own files."""

import argparse
from pathlib import Path
from typing import Any

from pausejax.commands import options as common


def add_to(commands: Any) -> None:
    """Adds the command to the command line."""
    parser = commands.add_parser("export", parents=[common.quiet()], help="write a result as Parquet or CSV")
    common.result(parser)
    parser.add_argument(
        "--format",
        choices=("parquet", "csv"),
        default="parquet",
        help="format of the file (default: parquet)",
    )
    parser.add_argument(
        "--curves", action="store_true", help="write one row per run and round (default: one row per run)"
    )
    parser.add_argument(
        "--out",
        metavar="FILE",
        help="file to write (default: DIR/runs.FORMAT or DIR/curves.FORMAT, or partial_… of these)",
    )
    parser.set_defaults(command=run)


def run(options: argparse.Namespace) -> None:
    """Writes the table of runs, or the table of curves, of a result."""
    from pausejax.results.export import export
    from pausejax.results.folder import Folder
    from pausejax.study.document import SpecError

    result = common.opened(options.directory, partial=options.partial)
    line = common.partial_line(result)
    # The name shows that the table is not of the whole study.
    name = f"{'partial_' if line else ''}{'curves' if options.curves else 'runs'}.{options.format}"
    folder = Folder(options.directory)
    if not options.out and not folder.is_local:
        raise SpecError([f"--out: must name a file on this machine, because the result is under {folder}"])
    path = Path(options.out or folder.path(name))
    rows = export(result, path, options.format, curves=options.curves)
    if not options.quiet:
        if line:
            common.console().print(line, markup=False, soft_wrap=True)
        common.console().print(f"{rows} rows: {path}", markup=False, soft_wrap=True)
