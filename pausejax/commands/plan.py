"""`pausejax plan`: prints what a study would cost, without running it."""

import argparse
from typing import Any

from pausejax.commands import executors
from pausejax.commands import options as common


def add_to(commands: Any) -> None:
    """Adds the command to the command line."""
    parser = commands.add_parser(
        "plan",
        parents=[common.spec(), executors.memory()],
        help="print the cost of a study, without running it",
    )
    parser.add_argument(
        "--compile", action="store_true", help="compile every program, and print the memory that it needs"
    )
    parser.add_argument(
        "--out",
        metavar="DIR",
        type=common.folder,
        help="folder of `pausejax run --out`: print the cost of runs that DIR lacks; DIR does not change",
    )
    parser.set_defaults(command=run)


def run(options: argparse.Namespace) -> None:
    """Prints the costs of each group of a study's runs.

    Raises:
      SpecError: the spec has mistakes, a group can't be built, or the folder holds another study.
    """
    plan = common.load_plan(options)
    from pausejax.data.host import DataCache
    from pausejax.execution.estimate import plan_table

    store = None
    if options.out:  # imported late, because these modules load the libraries that read results
        from pausejax.results.folder import Folder
        from pausejax.results.stores import FolderView

        store = FolderView(Folder(options.out))
    table = plan_table(
        plan,
        DataCache(options.data_dir),
        compiles=options.compile,
        device_memory=options.memory,
        data_placement=options.data_placement,
        store=store,
    )
    common.console().print(table)
