"""`pausejax search`: searches the lists and ranges of a spec for the best settings."""

import argparse
import contextlib
from pathlib import Path
from typing import Any

from pausejax.commands import executors, report
from pausejax.commands import options as common


def add_to(commands: Any) -> None:
    """Adds the command to the command line."""
    parser = commands.add_parser(
        "search",
        parents=[common.spec(), executors.telling(), executors.devices(), executors.arguments()],
        help="find the best settings of a spec's lists and ranges",
        description=(
            "Simulates settings from a spec's lists and ranges, and the best settings again on fresh "
            "seeds. After an interruption, the same command continues the search."
        ),
    )
    parser.add_argument(
        "--out", metavar="DIR", required=True, type=common.folder, help="folder of the search"
    )
    parser.add_argument(
        "--metric",
        action="append",
        default=[],
        metavar="NAME",
        help="metric to optimize (default: the study's first objective); several give their Pareto front",
    )
    way = parser.add_mutually_exclusive_group()
    way.add_argument(
        "--maximize",
        dest="maximize",
        action="store_true",
        default=None,
        help="larger values of the metric are better",
    )
    way.add_argument(
        "--minimize",
        dest="maximize",
        action="store_false",
        default=None,
        help="smaller values of the metric are better",
    )
    parser.add_argument(
        "--constraint",
        action="append",
        default=[],
        metavar="METRIC<=NUMBER",
        help="bound on a setting's mean of a metric, e.g. max_leakage<=50; may be repeated",
    )
    parser.add_argument("--at-round", type=common.count, metavar="N", help="compare settings after N rounds")
    parser.add_argument(
        "--at-latency", type=_number, metavar="SECONDS", help="compare settings at this simulated time"
    )
    parser.add_argument(
        "--trials", type=common.count, default=64, metavar="N", help="number of settings to try (default 64)"
    )
    parser.add_argument(
        "--sampler",
        default="tpe",
        metavar="NAME",
        help="method that proposes settings: tpe (default), cmaes, nsga2 or random",
    )
    parser.add_argument(
        "--sampler-seed", type=_seed, default=0, metavar="N", help="seed of the sampler (default 0)"
    )
    parser.add_argument(
        "--fresh-seeds",
        type=common.count,
        default=20,
        metavar="N",
        help="number of fresh seeds that compare the best, the second and the default setting (default 20)",
    )
    parser.set_defaults(command=run, format=None, chart=[], width=None, height=None, baseline=None)


def run(options: argparse.Namespace) -> None:
    """Runs a search, simulates the best settings again on fresh seeds, prints the table and draws charts.

    Raises:
      SpecError: the spec or the options have mistakes, or the folder holds another study or search.
      OSError: the folder can't be written, for example because no space is left.
    """
    from pausejax.study import spec

    executors.check(options)
    spec.read(options.spec)  # before the parts are loaded, because that takes seconds
    from pausejax import kinds
    from pausejax.execution import tracking
    from pausejax.execution.displays import default_form, showing
    from pausejax.execution.runtime import set_up_jax
    from pausejax.execution.stopping import stop_on_signals
    from pausejax.results.exchange import result_name
    from pausejax.results.folder import Folder
    from pausejax.results.parts import part_names
    from pausejax.results.stores import FolderStore
    from pausejax.searches import search_file
    from pausejax.searches.confirm import confirm
    from pausejax.searches.options import SearchOptions, check_fresh
    from pausejax.searches.progress import SearchMeter
    from pausejax.searches.search import prepare, search

    set_up_jax()  # before the parts are loaded, because a part's file may make arrays
    study = kinds.load(options.spec, options.set, options.use, searched=True)
    asked = SearchOptions(
        trials=options.trials,
        metrics=tuple(options.metric),
        maximize=options.maximize,
        constraints=tuple(options.constraint),
        at_round=options.at_round,
        at_latency=options.at_latency,
        sampler=options.sampler,
        sampler_seed=options.sampler_seed,
        max_width=options.max_width,
    )
    check_fresh(study, options.fresh_seeds)
    store = FolderStore(Folder(options.out), command=options.typed)
    prepare(study, asked, store.folder)  # before this process may wait for another one
    tracker = tracking.make(options.tracker, Path(options.spec).stem) if options.tracker else None
    form = None if options.quiet else options.log or default_form()
    with (
        stop_on_signals() as stopping,
        executors.executor(options, stopping) as executor,
        contextlib.ExitStack() as stack,
    ):
        meter = SearchMeter(study, asked, executor.devices)
        with showing(meter, form):
            stack.enter_context(search_file.alone(store.folder, stopping))
            result = search(study, asked, executor, store, progress=meter, tracker=tracker, stopping=stopping)
        fresh = FolderStore(Folder(report.confirmation(options.out)), command=options.typed)
        try:
            result = confirm(result, options.fresh_seeds, executor, fresh, form=form, stopping=stopping)
        except spec.SpecError as mistake:
            if result_name(fresh.folder) is None and not part_names(fresh.folder):
                raise
            # The best settings or the number of seeds have changed.
            way_out = f"Or remove {fresh}. The same command then simulates this search's best settings again"
            raise spec.SpecError([*mistake.problems, way_out]) from mistake
    _finish(result, options)
    if tracker:
        with store.reporting(alone=True):
            tracking.attach_files(tracker, options.out)


def _finish(result: Any, options: argparse.Namespace) -> None:
    from pausejax.results.folder import Folder
    from pausejax.searches.result import record_of, summary, table

    record_of(result).write(Folder(options.out))
    if not options.quiet:
        console = common.console()
        for line in result.damaged:
            console.print(line, markup=False)
        console.print(table(result))
        console.print(summary(result), markup=False)
    if not options.no_report:
        report.report_search(options.out, options, ("png",))
        _report_confirmation(options)


def _report_confirmation(options: argparse.Namespace) -> None:
    from pausejax import kinds, page
    from pausejax.results import study_folder
    from pausejax.results.folder import Folder

    where = report.confirmation(options.out)
    result = study_folder.read(where)
    text = page.build(result, kinds.charts(result), notes=kinds.omitted(result))
    Folder(where).write(page.NAME, text.encode())


def _number(text: str) -> float:
    """Parses any number; its range is checked with the other options of the search."""
    try:
        return float(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{text!r} must be a number") from error


def _seed(text: str) -> int:
    if not text.isdecimal() or int(text) > 2**32 - 1:
        raise argparse.ArgumentTypeError(f"{text!r} must be an integer from 0 to 4294967295")
    return int(text)
