"""`pausejax report`: draws a result again. Nothing of the user's is executed."""

import argparse
from typing import Any

from pausejax.commands import options as common


def add_to(commands: Any) -> None:
    """Adds the command to the command line."""
    parser = commands.add_parser(
        "report", parents=[common.quiet(), common.drawing()], help="draw a result again"
    )
    common.result(parser)
    parser.set_defaults(command=run)


def run(options: argparse.Namespace) -> None:
    """Draws all pictures of a result into its folder."""
    common.draw(options.directory, options)
