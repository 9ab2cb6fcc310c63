"""Runs a plan whose mode is "ensemble": one pool of models per data set, one program per policy and pool."""

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np
from rich import box
from rich.console import Group as Lines
from rich.table import Table

from pausejax.clients.build import Sources
from pausejax.engine.schedule import Chunk, Unit
from pausejax.ensemble import Pool, Runs, one_pass, simulate, stream_length
from pausejax.results.layout import Arrays
from pausejax.study.plan import Group, Plan
from pausejax.study.spec import SpecError

_POOL_OPTIONS = ("fit_fraction", "ridge", "feature_scaling", "kernel_parameters")
# Measured on two CPU cores with 22 models; EFL-FG, the slowest policy.
_SECONDS_PER_ROUND = 1e-5


def check(plan: Plan, groups: Iterable[Group], sources: Sources) -> None:
    """Sees to it that all data of some groups are there and suffice.

    Raises:
      SpecError: data are missing or wrong, or too few for so many clients; nothing has been simulated then.
    """
    for group in groups:
        _rounds(plan, group, sources)
        _pool(group, sources)


def simulate_units(
    plan: Plan,
    work: Iterable[Unit],
    finished: Collection[int],
    sources: Sources,
    progress: Callable[[int], None],
    threads: ThreadPoolExecutor,
) -> Iterator[tuple[Chunk, Arrays]]:
    """Simulates what is unfinished of some units, side by side, and yields each as a chunk of its own.

    Args:
      plan: of mode "ensemble".
      work: the units.
      finished: places of runs that need not be played.
      sources: where data come from.
      progress: called with how many rounds × runs have been advanced; runs alone where `rounds` is 0.
      threads: that the units are simulated in.
    """

    def play(unit: Unit) -> tuple[Chunk, Arrays] | None:
        members = tuple(member for member in unit.members if member not in finished)
        if not members:
            return None
        arrays = _simulate(plan, unit.group, members, sources, progress)
        return Chunk(unit.group, members, len(members)), arrays

    # XLA compiles outside the interpreter's lock, so programs compile side by side while others run.
    yield from filter(None, threads.map(play, work))


def _simulate(
    plan: Plan, group: Group, members: Sequence[int], sources: Sources, progress: Callable[[int], None]
) -> Arrays:
    pool, rounds = _pool(group, sources), _rounds(plan, group, sources)
    settings = _runs(plan, members, rounds)
    arrays = simulate(
        pool,
        group.algorithm,
        settings,
        rounds=rounds,
        num_clients=group.static["num_clients"],
        record_every=plan.study.eval_every,
        progress=lambda runs: progress(runs * max(plan.study.rounds, 1)),
    )
    read = plan.runs[members[0]].values
    rates = {
        name: getattr(settings, name) if name in read else np.full(len(members), np.nan)
        for name in ("learning_rate", "exploration_rate")
    }
    costs = np.broadcast_to(pool.costs.astype(np.float32), (len(members), len(pool.costs)))
    played = np.full(len(members), rounds, np.int32)
    return {**arrays, **rates, "model_cost": costs, "rounds_played": played}


def plan_table(plan: Plan, sources: Sources) -> Lines:
    """What the plan comes to: runs, rounds and a rough time per group; nothing is simulated."""
    table = Table(box=box.SIMPLE_HEAD)
    for heading in ("program", "runs", "rounds", "time, s (rough)"):
        table.add_column(heading, justify="left" if heading == "program" else "right")
    total = 0.0
    for group in plan.groups:
        rounds = _rounds(plan, group, sources)
        seconds = len(group.members) * rounds * _SECONDS_PER_ROUND
        total += seconds
        labels = ", ".join(dict.fromkeys(plan.runs[position].policy for position in group.members))
        label = f"{group.algorithm} on {group.static['dataset']} ({labels})"
        table.add_row(label, str(len(group.members)), str(rounds), f"{seconds:.1f}")
    return Lines(
        f"{len(plan.runs)} runs in {len(plan.groups)} groups, one compilation each; "
        f"axes: {', '.join(plan.axes) or 'none'}; seeds: {len(plan.study.seeds)}",
        table,
        f"about {total:.0f} s after compilation",
    )


def _pool(group: Group, sources: Sources) -> Pool:
    static = group.static
    options = {name: static[name] for name in _POOL_OPTIONS}
    try:
        return sources.pool(static["dataset"], seed=static["pool_seed"], **options)
    except ValueError as error:
        raise SpecError([str(error)]) from None


def _rounds(plan: Plan, group: Group, sources: Sources) -> int:
    """T; without one, as many rounds as the stream lasts, in whole steps of the record."""
    dataset, num_clients = group.static["dataset"], group.static["num_clients"]
    try:
        rows = stream_length(len(sources.table(dataset).targets), group.static["fit_fraction"])
    except ValueError as error:
        raise SpecError([str(error)]) from None
    if num_clients > rows:
        problem = f"must be <= {rows}, the samples of {dataset} that no model is fitted on"
        raise SpecError([f"network.num_clients = {num_clients}: {problem}"])
    every = plan.study.eval_every
    return plan.study.rounds or max(one_pass(rows, num_clients) // every, 1) * every


def _runs(plan: Plan, members: Sequence[int], rounds: int) -> Runs:
    def column(name: str, default: float = 0.0) -> np.ndarray:
        """The runs' values; the default where the spec says 0 or the policy does not read the parameter."""
        return np.array([plan.runs[position].values.get(name) or default for position in members])

    return Runs(
        seed=np.array([plan.runs[position].seed for position in members]),
        learning_rate=column("learning_rate", rounds**-0.5),
        exploration_rate=column("exploration_rate", rounds**-0.5),
        budget=column("budget"),
        uplink=column("uplink"),
        spending=column("spending", 1.0),
    )
