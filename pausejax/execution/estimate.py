"""What a plan will cost: runs, batches, memory off shapes or off the compiled programs, rough times.

Times come from the traced programs: what they do, at the rates of such devices (`measured.json`).
"""

import dataclasses
import time
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
from rich import box
from rich.console import Group as Lines
from rich.table import Table
from rich.text import Text

from pausejax import measured
from pausejax.data.host import Sources
from pausejax.devices import runs_mesh
from pausejax.execution.batches import Batch, batches
from pausejax.execution.local import LocalExecutor, widths_before
from pausejax.execution.memory import fitting, program_memory
from pausejax.execution.program import GroupProgram
from pausejax.execution.work import Work, work_of
from pausejax.measured import Rates
from pausejax.study.runs import Run, policies_of
from pausejax.study.simulation import DeviceBytes
from pausejax.study.study import Plan

if TYPE_CHECKING:
    from pausejax.results.store import Contents
    from pausejax.results.stores import FolderView


class Cost(NamedTuple):
    """The predicted cost of one group."""

    label: str
    runs: int
    rounds: int
    batches: int
    lanes: int
    """Runs side by side in a batch."""
    resident: DeviceBytes
    """What lies on each device."""
    fitting: int
    """Runs that have room on each device beside it, at most."""
    memory: int
    """Bytes on all devices: from shapes, arguments and states without temporaries; compiled, all of it."""
    seconds: float
    """To play all rounds."""
    compile_seconds: float
    """Estimated from the program's size, or measured."""
    before: frozenset[int] = frozenset()
    """For how many runs side by side the group's programs were compiled earlier, for the same folder."""
    grown: bool = False
    """Whether the earlier ones took arrays of other sizes, even where they are as wide."""


def plan_table(
    plan: Plan,
    sources: Sources,
    *,
    compiles: bool = False,
    device_memory: int | None = None,
    data_placement: str | None = None,
    store: "FolderView | None" = None,
) -> Lines:
    """The costs of all groups, and what lies on a device, as tables; runs nothing.

    Args:
      plan: the study.
      sources: where data come from.
      compiles: read memory and compile time off the compiled programs, and not off shapes.
      device_memory: bytes that a program may use on each device; measured if not given.
      data_placement: as for `LocalExecutor`.
      store: what it holds is left out; nothing may be written to it.

    Raises:
      SpecError: a group can't be built, not even one run of it fits a device, or the store holds another
        study.
    """
    executor = LocalExecutor(sources, device_memory=device_memory, data_placement=data_placement)
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
    headings = ["program", "runs", "rounds", "batches", "runs a\nbatch", of_memory]
    headings += ["compile, s" if compiles else "compile, s\n(rough)", "play, s\n(rough)"]
    for heading in headings:
        table.add_column(heading, justify="left" if heading == "program" else "right")
    for cost in costs:
        row = [str(cost.runs), str(cost.rounds), str(cost.batches), str(cost.lanes)]
        row += [f"{cost.memory / 1e6:.0f}"]
        table.add_row(Text(cost.label), *row, f"{cost.compile_seconds:.0f}", f"{cost.seconds:.0f}")
    compiling = sum(cost.compile_seconds for cost in costs)
    total = compiling + sum(cost.seconds for cost in costs)
    most = max(cost.memory for cost in costs) / 1e6
    return Lines(
        whole,
        *there,
        table,
        f"about {total:.0f} s, of which {compiling:.0f} s for compiling what is not in the cache; "
        f"{'' if compiles else 'at least '}{most:.0f} MB at a time "
        f"on {jax.device_count()} {jax.default_backend()} device(s)"
        + ("" if compiles else "; --compile asks the compiler for the memory"),
        *_resident_table(costs, executor.device_memory),
    )


def _left(runs: int, costs: Sequence[Cost]) -> str:
    """Says how many of so many runs are left, and which of the programs for them compile anew."""
    left = sum(cost.runs for cost in costs)
    if not left:
        return f"all {runs:,} runs are there already: nothing is compiled, nothing is played"
    if left == runs:
        return f"none of the {runs:,} runs is there yet"
    told = f"{runs - left:,} of {runs:,} runs are there already; the rest takes {_programs(len(costs))}"
    wider = [cost for cost in costs if cost.before and cost.lanes not in cost.before]
    grown = [cost for cost in costs if cost.grown and cost not in wider]
    if not (wider or grown):
        return told
    reasons = []
    if wider:
        now = _span({cost.lanes for cost in wider})
        before = _span({width for cost in wider for width in cost.before})
        reasons.append(f"of another width, {now} side by side and not {before}")
    if grown:
        reasons.append("for what all runs share, which has grown")
    seconds = sum(cost.compile_seconds for cost in (*wider, *grown))
    anew = f"{len(wider) + len(grown)} compiled anew in about {seconds:.0f} s"
    return f"{told}, {anew}: {'; '.join(reasons)}"


def _programs(count: int) -> str:
    return f"{count:,} program{'' if count == 1 else 's'}"


def _span(widths: Collection[int]) -> str:
    low, high = min(widths), max(widths)
    return f"{low:,}" if low == high else f"{low:,} to {high:,}"


def _resident_table(costs: Sequence[Cost], limit: int) -> tuple[str, Table]:
    """What lies on a device, once for all runs and for each of them."""
    shared = dict.fromkeys(name for cost in costs for name, size in cost.resident.shared.items() if size)
    each = dict.fromkeys(name for cost in costs for name, size in cost.resident.each.items() if size)
    table = Table(box=box.SIMPLE_HEAD)
    headings = ["program", *(f"{name},\nMB" for name in shared), *(f"{name} of\na run, kB" for name in each)]
    for heading in [*headings, "runs that\nfit"]:
        table.add_column(heading, justify="left" if heading == "program" else "right")
    for cost in costs:
        row = [f"{cost.resident.shared.get(name, 0) / 1e6:,.1f}" for name in shared]
        row += [f"{cost.resident.each.get(name, 0) / 1e3:,.1f}" for name in each]
        table.add_row(Text(cost.label), *row, f"{cost.fitting:,}")
    told = (
        f"On each device, which has room for {limit / 1e9:,.4g} GB; every device holds all of the data but "
        "what is said to be a share, and a program needs more than this while it runs:"
    )
    return told, table


def group_costs(
    plan: Plan, executor: LocalExecutor, *, compiles: bool, store: "FolderView | None" = None
) -> list[Cost]:
    """The predicted cost of every group that has runs left; as `plan_table`."""
    rates = measured.rates(jax.default_backend())
    held = store.prepare(plan) if store else None
    work, known = _work(plan, executor, store, held), store.layouts.fits() if store else {}
    settled = held.settled if store and held and not store.has_begun(plan) else frozenset()
    costs = []
    for group in plan.groups:
        if not (own := [batch for batch in work if batch.group is group]):
            continue
        program = executor.program(plan.study, group)
        simulation = program.simulation
        resident = simulation.device_bytes()
        fits = fitting(resident, executor.device_memory)
        width = executor.width(plan.study, own[0], known)
        width = min(width, fits * runs_mesh(width).size)
        rows = simulation.padded(width)
        memory = runs_mesh(rows).size * sum(resident.shared.values()) + rows * sum(resident.each.values())
        took = 0.0
        if compiles:
            executor.prepare(plan.study, own, known)
            begun = time.perf_counter()
            compiled = program.compiled()
            took = time.perf_counter() - begun
            width, rows = compiled.width, simulation.padded(compiled.width)
            memory = runs_mesh(rows).size * program_memory(compiled.call)
        count = sum(-(-len(batch.runs) // width) for batch in own)
        traced = simulation.trace(rows).jaxpr
        call = work_of(traced.jaxpr, simulation.turns())
        before = widths_before(group, known)
        earlier = tuple(run for run in group.runs if run.identity in settled)
        grown = bool(earlier) and width in before and _inputs(plan, program, earlier, rows) != traced.in_avals
        costs.append(
            Cost(
                f"{group.algorithm} ({policies_of(group.runs)})",
                sum(len(batch.runs) for batch in own),
                simulation.rounds,
                count,
                width,
                resident,
                fits,
                memory,
                count * simulation.rounds / simulation.rounds_per_call * call_seconds(call, rates),
                took or call.equations * rates.equation,
                before,
                grown,
            )
        )
        program.release()
    return costs


def _work(
    plan: Plan, executor: LocalExecutor, store: "FolderView | None", held: "Contents | None"
) -> list[Batch]:
    """Returns the batches that would be played."""
    if store is None or held is None:
        most = {key: layout.runs for key, layout in executor.layouts(plan).items()}
        return batches(plan, (), most)
    from pausejax.execution.play import work_left  # it loads what reads results

    return work_left(plan, executor, store, held)


def _inputs(plan: Plan, program: GroupProgram, runs: tuple[Run, ...], rows: int) -> list[Any]:
    """Returns what a program takes, shapes and types, where its group has some of its runs alone.

    What all runs share, such as the data's shares by seed, may be smaller then.
    """
    part = dataclasses.replace(program.group, runs=runs)
    memory = program.device_memory
    made = GroupProgram(plan.study, part, program.sources, program.layout, device_memory=memory)
    found: list[Any] = made.simulation.trace(rows).jaxpr.in_avals
    made.release()
    return found


def call_seconds(call: Work, rates: Rates) -> float:
    """Estimates what one call of a program takes."""
    return (
        call.operations * rates.operation
        + call.numbers * rates.number
        + call.products * rates.product
        + call.convolutions * rates.convolution
    )
