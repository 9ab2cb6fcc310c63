"""`pausejax search`: the best settings of a spec for a budget of rounds."""

import argparse
import contextlib
import functools
import re
from typing import Any

from pausejax.commands import executors
from pausejax.commands import options as common

_SUFFIX = {"": 1, "k": 10**3, "M": 10**6, "G": 10**9}


def add_to(commands: Any) -> None:
    """Adds the command to the command line."""
    parser = commands.add_parser(
        "search",
        parents=[common.spec(), common.quiet(), executors.devices(), executors.arguments()],
        help="find the best settings of a spec's lists and ranges",
        description=(
            "Tries settings of a spec's lists and ranges side by side. At rungs the worse ones stop and make "
            "room for others; the best is played again on fresh seeds. The same command goes on where it was."
        ),
    )
    parser.add_argument(
        "--out", metavar="DIR", required=True, type=common.folder, help="where everything is kept"
    )
    parser.add_argument(
        "--metric",
        action="append",
        default=[],
        metavar="NAME",
        help="the figure per run that counts (default: the study's own); twice or more for a front",
    )
    way = parser.add_mutually_exclusive_group()
    way.add_argument("--maximize", dest="maximize", action="store_true", default=None, help="more is better")
    way.add_argument("--minimize", dest="maximize", action="store_false", default=None, help="less is better")
    parser.add_argument(
        "--constraint",
        action="append",
        default=[],
        metavar="METRIC<=NUMBER",
        help="what the best must keep to, on average; also >=; may be repeated",
    )
    parser.add_argument("--at-round", type=common.count, metavar="N", help="compare after N rounds")
    parser.add_argument("--at-latency", type=_number, metavar="SECONDS", help="compare at a simulated time")
    parser.add_argument(
        "--budget",
        type=_rounds,
        required=True,
        metavar="ROUNDS",
        help="rounds × runs to play, as 200000 or 2M",
    )
    parser.add_argument(
        "--sampler", default="tpe", metavar="NAME", help="tpe (default), cmaes, nsga2, sobol, random, grid"
    )
    parser.add_argument(
        "--sampler-seed", type=_seed, default=0, metavar="N", help="of the sampler (default 0)"
    )
    parser.add_argument(
        "--reduction",
        type=_number,
        metavar="N",
        help="of those at a rung one in N goes on (default: 3 with --first-rung, else 1, which stops nobody)",
    )
    parser.add_argument(
        "--first-rung",
        type=_number,
        metavar="N",
        help="the first rung, in rounds or seconds (default: one before the end)",
    )
    parser.add_argument(
        "--fresh-seeds",
        type=common.count,
        default=20,
        metavar="N",
        help="seeds on which the best, the second and the defaults are compared in the end (default 20)",
    )
    parser.add_argument("--no-report", action="store_true", help="draw nothing")
    parser.add_argument(
        "--tracker", metavar="NAME", help="report runs that have ended: mlflow, tensorboard or wandb"
    )
    parser.add_argument(
        "--log",
        choices=("text", "json", "bar"),
        help="how progress is told on stderr (default: bar on a terminal, else text, a line every 30 s)",
    )
    parser.set_defaults(command=run)


def run(options: argparse.Namespace) -> None:
    """Searches, plays the best again on fresh seeds, prints and draws.

    Raises:
      SpecError: the spec or the options have mistakes, or the folder holds something else.
      OSError: the folder is full, or the like.
    """
    from pausejax.study import spec

    cluster = executors.cluster(options)
    spec.read(options.spec)  # before the parts are loaded, which takes seconds
    from pausejax import kinds
    from pausejax.data.host import Sources
    from pausejax.engine import tracking
    from pausejax.engine.progress import default_form
    from pausejax.engine.runtime import set_up_jax
    from pausejax.engine.stopping import listening
    from pausejax.results.folder import Folder
    from pausejax.searches import find
    from pausejax.searches.options import Options, check_fresh
    from pausejax.searches.progress import reporting

    study = kinds.load(options.spec, options.set, options.use, searched=True)
    asked = Options(
        budget=options.budget,
        metrics=tuple(options.metric),
        maximize=options.maximize,
        constraints=tuple(options.constraint),
        at_round=options.at_round,
        at_latency=options.at_latency,
        sampler=options.sampler,
        sampler_seed=options.sampler_seed,
        reduction=options.reduction,
        first_rung=options.first_rung,
        most=options.lanes,
        device_memory=options.memory,
        data_placement=options.data_placement,
    )
    check_fresh(study, options.fresh_seeds)
    set_up_jax()
    sources, folder = Sources(options.data_dir), Folder(options.out)
    tracker = tracking.make(options.tracker) if options.tracker else None
    form = None if options.quiet else options.log or default_form()
    with listening() as stopping, _connected(cluster):
        devices, players = _players(cluster, stopping)
        with reporting(study, asked, form, devices) as progress:
            found = find.search(
                study,
                asked,
                sources,
                folder,
                command=options.typed,
                progress=progress,
                tracker=tracker,
                stopping=stopping,
                players=players,
            )
        compared = _confirm(found, options, sources, cluster, stopping)
    _finish(found, compared, options)


def _connected(cluster: Any) -> contextlib.AbstractContextManager[None]:
    """One connection for the search and for its best on fresh seeds."""
    if cluster is None:
        return contextlib.nullcontext()
    from pausejax.cluster import pool

    return pool.connected(cluster.address, to_the_end=cluster.to_the_end)


def _players(cluster: Any, stopping: Any) -> Any:
    """What plays, in words, and how it is made."""
    if cluster is None:
        from pausejax.devices import local_devices
        from pausejax.searches.find import local_player

        return local_devices(), local_player
    from pausejax.cluster import searching

    made = functools.partial(searching.player, cluster=cluster, stopping=stopping)
    return "the workers of a Ray cluster", made


def _confirm(found: Any, options: argparse.Namespace, sources: Any, cluster: Any, stopping: Any) -> Any:
    """The contenders on fresh seeds, as a study in a folder of its own."""
    from pausejax.engine.local import Settings, simulate_into
    from pausejax.results import store
    from pausejax.results.folder import Folder
    from pausejax.searches import confirm
    from pausejax.study.plan import make_plan

    simulate: Any = simulate_into
    if cluster:
        from pausejax.cluster import driver

        simulate = functools.partial(driver.simulate_into, cluster=cluster)
    where = common.confirmation(options.out)
    plan = make_plan(confirm.confirmation(found, options.fresh_seeds))
    folder = Folder(where)
    settings = Settings(
        options.lanes, options.memory, command=options.typed, data_placement=options.data_placement
    )
    held = store.prepare(folder, plan)
    simulate(folder, plan, held, sources, settings, progress=lambda _: None, stopping=stopping)
    return confirm.compare(found, store.read(where).load())


def _finish(found: Any, compared: Any, options: argparse.Namespace) -> None:
    from pausejax.results.folder import Folder
    from pausejax.searches import table
    from pausejax.searches.record import record_of

    record_of(found, compared).write(Folder(options.out))
    if not options.quiet:
        console = common.console()
        console.print(table.table(found, compared))
        console.print(table.summary(found), markup=False)
    if not options.no_report:
        common.draw_search(options.out, quiet=options.quiet)
        _draw_confirmation(options)


def _draw_confirmation(options: argparse.Namespace) -> None:
    from pausejax import kinds, page
    from pausejax.results import store

    where = common.confirmation(options.out)
    result = store.read(where)
    figures = kinds.draw(result)
    common.leave(where, figures, page.build(result, figures, notes=kinds.left_out(result)))


def _rounds(text: str) -> int:
    found = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?)([kMG]?)", text)
    count = round(float(found[1]) * _SUFFIX[found[2]]) if found and len(text) < 20 else 0
    if not 1 <= count <= 10**12:
        told = "as 200000, 200k or 2M; from 1 to 1000G"
        raise argparse.ArgumentTypeError(f"{text!r} is no number of rounds: {told}")
    return count


def _number(text: str) -> float:
    """Any; what it may be is seen with the rest."""
    try:
        return float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is no number") from None


def _seed(text: str) -> int:
    if not text.isdecimal() or int(text) > 2**32 - 1:
        raise argparse.ArgumentTypeError(f"{text!r} is no seed: an integer from 0 to 4294967295")
    return int(text)
