"""`pausejax report`: writes a result's page and charts. Nothing of the user's is executed."""

import argparse
from typing import Any

from pausejax.commands import options as common


def add_to(commands: Any) -> None:
    """Adds the command to the command line."""
    parser = commands.add_parser(
        "report", parents=[common.quiet(), common.charts()], help="write the page and the charts of a result"
    )
    common.result(parser)
    parser.set_defaults(command=run)


def run(options: argparse.Namespace) -> None:
    """Writes the page of a result into its folder, and charts as files where they are asked for."""
    common.write_report(options.directory, options)
