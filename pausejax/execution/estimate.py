"""Estimates the cost of a plan: runs, batches, memory and rough times.

The memory comes from array shapes or from the compiled programs. The times come from the operations of the
traced programs and from the measured rates of the same kind of device (`measured.json`).
"""

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import jax
from rich import box
from rich.console import Group as Lines
from rich.table import Table
from rich.text import Text

from pausejax import measured
from pausejax.data.host import DataCache
from pausejax.devices import runs_mesh
from pausejax.execution.batches import Batch, batches, unfinished
from pausejax.execution.local import LocalExecutor
from pausejax.execution.memory import program_memory, runs_that_fit
from pausejax.execution.work import Work, work_of
from pausejax.measured import Rates
from pausejax.study.runs import policies_of
from pausejax.study.simulation import DeviceBytes
from pausejax.study.study import Plan

if TYPE_CHECKING:
    from pausejax.results.stores import FolderView


class Cost(NamedTuple):
    """The predicted cost of one group."""

    label: str
    runs: int
    rounds: int
    batches: int
    width: int
    """The number of runs that the group's program computes in parallel."""
    resident: DeviceBytes
    """The bytes that stay on each device while the group is played."""
    runs_that_fit: int
    """The largest number of runs that fit on each device, in addition to the data that all runs share."""
    memory: int
    """Bytes that the group needs on all devices together.

    An estimate from shapes omits temporary arrays. An estimate from compiled programs includes them.
    """
    seconds: float
    """The time to play all rounds, in seconds."""
    compile_seconds: float
    """The time to compile, in seconds: estimated from the program's size, or measured."""
    model_bytes: int
    """The bytes that the result keeps of the models of one run."""


def plan_table(
    plan: Plan,
    cache: DataCache,
    *,
    compiles: bool = False,
    device_memory: int | None = None,
    data_placement: str | None = None,
    store: "FolderView | None" = None,
) -> Lines:
    """Returns tables of the costs of all groups and of the bytes on a device. No run is played.

    Args:
      plan: the study.
      cache: the training data on the host.
      compiles: whether memory and compile time come from the compiled programs instead of the shapes.
      device_memory: bytes that a program may use on each device; measured if not given.
      data_placement: "replicated" or "sharded" training inputs; None: sharded only if replicated inputs do
        not fit.
      store: the study's result so far. Its runs are left out of the costs. The store is not changed.

    Raises:
      SpecError: a group can't be built, a device has no room for even one run of a group, or the store
        holds another study.
    """
    executor = LocalExecutor(cache, device_memory=device_memory, data_placement=data_placement)
    costs = group_costs(plan, executor, compiles=compiles, store=store)
    whole = (
        f"{len(plan.runs)} runs in {len(plan.groups)} groups, one compilation each; "
        f"axes: {', '.join(plan.axes) or 'none'}; seeds: {len(plan.study.seeds)}"
    )
    there = [_left(len(plan.runs), costs)] if store else []
    if not costs:
        return Lines(whole, *there)
    table = Table(box=box.SIMPLE_HEAD)
    of_memory = "memory, MB" if compiles else "memory, MB\n(at least)"
    headings = ["group", "runs", "rounds", "batches", "runs a\nbatch", of_memory]
    headings += ["compile, s" if compiles else "compile, s\n(rough)", "play, s\n(rough)"]
    for heading in headings:
        table.add_column(heading, justify="left" if heading == "group" else "right", overflow="fold")
    for cost in costs:
        row = [str(cost.runs), str(cost.rounds), str(cost.batches), str(cost.width)]
        row += [f"{cost.memory / 1e6:.0f}"]
        table.add_row(Text(cost.label), *row, f"{cost.compile_seconds:.0f}", f"{cost.seconds:.0f}")
    compiling = sum(cost.compile_seconds for cost in costs)
    total = compiling + sum(cost.seconds for cost in costs)
    most = max(cost.memory for cost in costs) / 1e6
    return Lines(
        whole,
        *there,
        table,
        f"about {total:.0f} s, of which {compiling:.0f} s compile programs that are not in the cache. "
        f"Memory in use at one time: {'' if compiles else 'at least '}{most:.0f} MB "
        f"on {jax.device_count()} {jax.default_backend()} device(s)"
        + ("" if compiles else ". With --compile, the compiler says how much"),
        *_models(costs),
        *_resident_table(costs, executor.device_memory),
    )


def _left(runs: int, costs: Sequence[Cost]) -> str:
    """Returns a line that says how many of the plan's `runs` are finished already."""
    left = sum(cost.runs for cost in costs)
    if not left:
        return f"all {runs:,} runs are finished: nothing is left to compile or to play"
    if left == runs:
        return f"none of the {runs:,} runs is finished"
    programs = "one program" if len(costs) == 1 else f"{len(costs):,} programs"
    return f"{runs - left:,} of {runs:,} runs are finished; the other runs need {programs}"


def _models(costs: Sequence[Cost]) -> list[str]:
    """Returns a line on the bytes that the models of all runs take in the result; [] if none are kept."""
    # Shorter vectors of weights are padded to the length of the longest.
    most, runs = max(cost.model_bytes for cost in costs), sum(cost.runs for cost in costs)
    told = f"keep_models: the result stores the models of {runs:,} runs, {most / 1e6:,.4g} MB each"
    return [f"{told}: {runs * most / 1e6:,.4g} MB before compression"] if most else []


def _resident_table(costs: Sequence[Cost], limit: int) -> tuple[str, Table]:
    """Returns a table of the bytes on a device: those that all runs share, and those of each run."""
    shared = dict.fromkeys(name for cost in costs for name, size in cost.resident.shared.items() if size)
    each = dict.fromkeys(name for cost in costs for name, size in cost.resident.per_run.items() if size)
    table = Table(box=box.SIMPLE_HEAD)
    headings = ["group", *(f"{name},\nMB" for name in shared), *(f"{name} of\na run, kB" for name in each)]
    for heading in [*headings, "runs that\nfit"]:
        table.add_column(heading, justify="left" if heading == "group" else "right", overflow="fold")
    for cost in costs:
        row = [f"{cost.resident.shared.get(name, 0) / 1e6:,.1f}" for name in shared]
        row += [f"{cost.resident.per_run.get(name, 0) / 1e3:,.1f}" for name in each]
        table.add_row(Text(cost.label), *row, f"{cost.runs_that_fit:,}")
    told = (
        f"Arrays on each device, which has room for {limit / 1e9:,.4g} GB. Every device holds all of the "
        "data, unless a column names a share. A running program needs more memory than these arrays:"
    )
    return told, table


def group_costs(
    plan: Plan, executor: LocalExecutor, *, compiles: bool, store: "FolderView | None" = None
) -> list[Cost]:
    """Traces the program of every group with unfinished runs, and returns the groups' predicted costs.

    Without a store, all runs are unfinished.

    Args:
      plan: the plan of the study.
      executor: the executor that makes the programs.
      compiles: whether the programs are compiled too, for exact memory and a measured compile time.
      store: the store of the study's result; it is not changed.
    """
    rates = measured.rates(jax.default_backend())
    work, known = _work(plan, executor, store), store.layouts.fitted_widths() if store else {}
    costs = []
    for group in plan.groups:
        if not (own := [batch for batch in work if batch.group is group]):
            continue
        program = executor.program(plan.study, group)
        simulation = program.simulation
        resident = simulation.device_bytes()
        fit = runs_that_fit(resident, executor.device_memory)
        width = executor.first_width(plan.study, own[0], known)
        width = min(width, fit * runs_mesh(width).size)
        rows = simulation.padded(width)
        memory = runs_mesh(rows).size * sum(resident.shared.values()) + rows * sum(resident.per_run.values())
        took = 0.0
        if compiles:
            executor.prepare(plan.study, own, known)
            begun = time.perf_counter()
            executable = program.executable()
            took = time.perf_counter() - begun
            width, rows = executable.width, simulation.padded(executable.width)
            memory = runs_mesh(rows).size * program_memory(executable.compiled)
        count = sum(-(-len(batch.runs) // width) for batch in own)
        call = work_of(simulation.trace(rows).jaxpr.jaxpr, simulation.turns())
        costs.append(
            Cost(
                f"{group.algorithm} ({policies_of(group.runs)})",
                sum(len(batch.runs) for batch in own),
                simulation.rounds,
                count,
                width,
                resident,
                fit,
                memory,
                count * simulation.rounds / simulation.rounds_per_call * call_seconds(call, rates),
                took or call.equations * rates.equation,
                simulation.model_bytes(),
            )
        )
        program.release()
    return costs


def _work(plan: Plan, executor: LocalExecutor, store: "FolderView | None") -> list[Batch]:
    """Returns the batches that the executor would play for the study's unfinished runs."""
    if store is None:
        max_runs = {key: layout.runs for key, layout in executor.layouts(plan).items()}
        return batches(plan, (), max_runs)
    from pausejax.execution.play import share_of  # imported late: it loads the package results

    contents = store.prepare(plan)
    return unfinished(share_of(plan, executor, store, contents), contents.identities)


def call_seconds(call: Work, rates: Rates) -> float:
    """Estimates the seconds that one call of a program takes, from its operations and the device's rates."""
    return (
        call.operations * rates.operation
        + call.numbers * rates.number
        + call.products * rates.product
        + call.convolutions * rates.convolution
    )
