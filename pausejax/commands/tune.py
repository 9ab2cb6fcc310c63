"""`pausejax tune`: measures how a study's work lies fastest on the devices of this machine."""

import argparse
from typing import Any

from pausejax.commands import executors
from pausejax.commands import options as common


def add_to(commands: Any) -> None:
    """Adds the command to the command line."""
    parser = commands.add_parser(
        "tune",
        parents=[common.spec(), executors.memory()],
        help="measure how a study's programs lie fastest on these devices, for `pausejax run`",
    )
    parser.add_argument(
        "--seconds",
        type=common.seconds,
        default=60.0,
        metavar="SECONDS",
        help="about so long for each thing to be decided (default 60)",
    )
    parser.set_defaults(command=run)


def run(options: argparse.Namespace) -> None:
    """Measures, keeps what was the fastest in the user's cache folder, and prints it.

    Raises:
      SpecError: the spec has mistakes, or a group can't be built.
    """
    plan = common.load_plan(options)
    from pausejax.data.host import Sources
    from pausejax.engine.engine import Engine
    from pausejax.engine.runtime import set_up_jax
    from pausejax.engine.tuning import Asked, decide, table

    set_up_jax()
    placement = options.data_placement
    sources = Sources(options.data_dir)
    engine = Engine(plan, sources, device_memory=options.memory, data_placement=placement)
    asked = Asked(kept=False, seconds=max(options.seconds, 1e-3))
    common.console().print(table(plan, decide(engine, plan.groups, asked, again=True)))
