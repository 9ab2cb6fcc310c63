"""`pausejax run`: simulates a study into a folder, prints its table and draws it."""

import argparse
import functools
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from pausejax.commands import executors
from pausejax.commands import options as common

if TYPE_CHECKING:
    from pausejax.engine.local import Outcome


def add_to(commands: Any) -> None:
    """Adds the command to the command line."""
    parser = commands.add_parser(
        "run",
        parents=[
            common.spec(),
            common.quiet(),
            common.drawing(),
            executors.devices(),
            executors.arguments(),
        ],
        help="simulate a study and draw it",
    )
    parser.add_argument(
        "--out", metavar="DIR", required=True, type=common.folder, help="where the result and the pictures go"
    )
    parser.add_argument("--no-report", action="store_true", help="draw nothing")
    parser.add_argument(
        "--tracker", metavar="NAME", help="report finished runs to a tracker: mlflow, tensorboard or wandb"
    )
    parser.add_argument(
        "--shard",
        type=common.shard,
        default=(1, 1),
        metavar="I/N",
        help="simulate the I-th of N shares; whoever ends last leaves the result",
    )
    parser.add_argument(
        "--checkpoint-every",
        type=common.seconds,
        default=300.0,
        metavar="SECONDS",
        help="between checkpoints of runs in flight (default 300)",
    )
    parser.add_argument(
        "--log",
        choices=("text", "json", "bar"),
        help="how progress is told on stderr (default: bar on a terminal, else text, a line every 30 s)",
    )
    parser.add_argument(
        "--no-tune",
        action="store_true",
        help="measure nothing on the devices, and take nothing that was measured there before",
    )
    parser.set_defaults(command=run)


def run(options: argparse.Namespace) -> None:
    """Simulates what is missing of a study.

    Raises:
      SpecError: the spec has mistakes, or the folder holds another study.
      OSError: the folder is full, or the like.
    """
    simulate = _executor(options)
    plan = common.load_plan(options)
    if options.measure or options.where or options.by:
        from pausejax.results import layout

        common.check_asked(layout.outline(plan), options)
    from pausejax.data.host import Sources
    from pausejax.devices import local_devices
    from pausejax.engine import tracking
    from pausejax.engine.local import Settings, simulate_into
    from pausejax.engine.progress import default_form, reporting
    from pausejax.engine.runtime import set_up_jax
    from pausejax.engine.stopping import listening
    from pausejax.results import store
    from pausejax.results.folder import Folder

    folder = Folder(options.out)
    tracker = tracking.make(options.tracker) if options.tracker else None
    found = store.prepare(folder, plan)
    set_up_jax()
    settings = Settings(
        options.lanes,
        options.memory,
        options.checkpoint_every,
        options.shard,
        options.typed,
        tune=not options.no_tune,
        data_placement=options.data_placement,
    )
    begun = time.monotonic()
    form = None if options.quiet else options.log or default_form()
    devices = "the workers of a Ray cluster" if simulate else local_devices()
    with listening() as stopping, reporting(plan, form, devices) as progress:
        outcome = (simulate or simulate_into)(
            folder,
            plan,
            found,
            Sources(options.data_dir),
            settings,
            progress=progress,
            tracker=tracker,
            stopping=stopping,
        )
    took = time.monotonic() - begun
    if not options.quiet:
        _say(outcome, len(plan.runs), folder.path(store.RESULT), options.out, took)
    if not outcome.missing and not options.no_report:
        common.draw(options.out, options)


def _say(outcome: "Outcome", runs: int, path: str, directory: str, took: float) -> None:
    from pausejax.report import diverged_runs, summary_table
    from pausejax.results import store

    console = common.console()
    for name in outcome.damaged:
        console.print(f"was damaged, and was simulated again: {name}", markup=False)
    if outcome.already:
        console.print(f"{outcome.already} of {runs} runs were there already")
    if outcome.missing:
        console.print(f"{outcome.missing} of {runs} runs are missing: other shards' work")
        return
    result = store.read(directory)
    console.print(summary_table(result))
    for line in diverged_runs(result):
        console.print(line, markup=False)
    console.print(f"{runs} runs in {took:.1f} s: {path}", markup=False)


def _executor(options: argparse.Namespace) -> "Callable[..., Outcome] | None":
    """What simulates a study elsewhere than in this process; None: nothing does."""
    from pausejax.study.document import SpecError

    if options.executor == "ray" and options.shard != (1, 1):
        raise SpecError(["--shard: not with --executor ray, which shares the work out itself"])
    cluster = executors.cluster(options)
    if cluster is None:
        return None
    from pausejax.cluster import driver

    return functools.partial(driver.simulate_into, cluster=cluster)
