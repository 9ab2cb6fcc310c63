"""`pausejax run`: simulates a study into a folder, prints its table, and writes its page and charts."""

import argparse
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pausejax.commands import executors, report
from pausejax.commands import options as common
from pausejax.study.document import SpecError

if TYPE_CHECKING:
    from pausejax.execution.play import Outcome
    from pausejax.study.study import Plan


def add_to(commands: Any) -> None:
    """Adds the command to the command line."""
    parser = commands.add_parser(
        "run",
        parents=[
            common.spec(),
            executors.telling(),
            common.charts(),
            executors.devices(),
            executors.arguments(),
        ],
        help="simulate a study, and write its page and charts",
    )
    parser.add_argument(
        "--out",
        metavar="DIR",
        required=True,
        type=common.folder,
        help="folder of the result, its page and its charts",
    )
    parser.add_argument(
        "--shard",
        type=common.shard,
        default=(1, 1),
        metavar="I/N",
        help="simulate the I-th of N shares of the runs; the last process to end writes the result",
    )
    parser.add_argument(
        "--checkpoint-every",
        type=common.seconds,
        default=300.0,
        metavar="SECONDS",
        help="seconds between two checkpoints of unfinished runs (default 300)",
    )
    parser.set_defaults(command=run)


def run(options: argparse.Namespace) -> None:
    """Simulates the runs of a study that its folder lacks.

    Raises:
      SpecError: the spec or the options have mistakes, or the folder holds another study.
      OSError: the folder can't be written, for example because no space is left.
    """
    if options.executor == "ray" and options.shard != (1, 1):
        raise SpecError(["--shard: not allowed with --executor ray, which distributes the runs itself"])
    executors.check(options)
    plan = common.load_plan(options)
    if options.measure or options.where or options.by or options.baseline:
        from pausejax.results import labels

        common.check_asked(labels.empty_result(plan), options)
    from pausejax.execution import tracking
    from pausejax.execution.displays import default_form, showing
    from pausejax.execution.play import play
    from pausejax.execution.progress import StudyMeter
    from pausejax.execution.stopping import stop_on_signals
    from pausejax.results.description import refuse_overwriting
    from pausejax.results.exchange import RESULT
    from pausejax.results.folder import Folder
    from pausejax.results.stores import FolderStore

    folder = Folder(options.out)
    refuse_overwriting(folder, plan, options.spec)
    tracker = tracking.make(options.tracker, Path(options.spec).stem) if options.tracker else None
    store = FolderStore(folder, checkpoint_seconds=options.checkpoint_every, command=options.typed)
    # This call refuses the folder of another study before JAX starts. `play` calls `prepare` again. The
    # second call returns the same contents without reading the folder.
    store.prepare(plan)
    begun = time.monotonic()
    form = None if options.quiet else options.log or default_form()
    with stop_on_signals() as stopping, executors.executor(options, stopping) as executor:
        meter = StudyMeter(plan, executor.devices)
        with showing(meter, form):
            outcome = play(
                plan,
                executor,
                store,
                shard=options.shard,
                progress=meter,
                tracker=tracker,
                stopping=stopping,
            )
    took = time.monotonic() - begun
    if not options.quiet:
        _say(outcome, plan, folder.path(RESULT), options.out, took)
    if not outcome.missing and options.no_report:
        report.tell(report.older_charts(options.out), options)
    elif not outcome.missing:
        report.write_report(options.out, options, ("png",))
    if tracker and not outcome.missing:
        with store.reporting(alone=True):
            tracking.attach_files(tracker, options.out)


def _say(outcome: "Outcome", plan: "Plan", path: str, directory: str, took: float) -> None:
    from pausejax.analysis import diverged_runs
    from pausejax.analysis.summaries import SummaryText, summary_text
    from pausejax.commands.tables import print_summary
    from pausejax.results import exchange, planned

    def summed_up() -> tuple[SummaryText, list[str]] | None:
        result = planned.opened(directory)
        return (summary_text(result), diverged_runs(result)) if planned.holds(result, plan) else None

    console, runs = common.console(), len(plan.runs)
    for name in outcome.damaged:
        console.print(f"was damaged, so its runs were simulated again: {name}", markup=False)
    if outcome.finished_before:
        console.print(f"{outcome.finished_before} of {runs} runs were finished before")
    if outcome.missing:
        console.print(f"{outcome.missing} of {runs} runs are missing: other shards simulate them")
        return
    table, diverged = exchange.settled(directory, summed_up) or (None, [])
    if table:
        print_summary(console, table)
    else:
        console.print("no table: another process has ended another study in this folder", markup=False)
    for line in diverged:
        console.print(line, markup=False)
    console.print(f"{runs} runs in {took:.1f} s: {path}", markup=False)
