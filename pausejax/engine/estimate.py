"""What a plan will cost: runs, chunks, memory off shapes or off the compiled programs, a rough time."""

import time
from collections.abc import Sequence
from typing import NamedTuple

import jax
from rich import box
from rich.console import Group as Lines
from rich.table import Table
from rich.text import Text

from pausejax.data.host import Sources
from pausejax.devices import runs_mesh
from pausejax.engine.engine import Engine
from pausejax.engine.memory import fitting, program_memory
from pausejax.engine.schedule import units
from pausejax.engine.speed import matrix_product_rate
from pausejax.engine.tuning import Asked, decide
from pausejax.study.simulation import Resident
from pausejax.study.study import Group, Plan


class Cost(NamedTuple):
    """The predicted cost of one group."""

    label: str
    runs: int
    rounds: int
    chunks: int
    lanes: int
    """Runs side by side in a chunk."""
    resident: Resident
    """What lies on each device."""
    fitting: int
    """Runs that have room on each device beside it, at most."""
    memory: int
    """Bytes on all devices: from shapes, arguments and states without temporaries; compiled, all of it."""
    seconds: float
    compile_seconds: float | None = None


def plan_table(
    plan: Plan,
    sources: Sources,
    *,
    compiles: bool = False,
    device_memory: int | None = None,
    data_placement: str | None = None,
) -> Lines:
    """The costs of all groups, and what lies on a device, as tables; runs nothing.

    Args:
      plan: the study.
      sources: where data come from.
      compiles: read memory and compile time off the compiled programs, and not off shapes.
      device_memory: bytes that a program may use on each device; measured if not given.
      data_placement: as for `Engine`.

    Raises:
      SpecError: a group can't be built, or not even one run of it fits a device.
    """
    engine = Engine(plan, sources, device_memory=device_memory, data_placement=data_placement)
    costs = group_costs(engine, compiles=compiles)
    table = Table(box=box.SIMPLE_HEAD)
    of_memory = "memory, MB" if compiles else "memory, MB\n(at least)"
    headings = ["program", "runs", "rounds", "chunks", "runs a\nchunk", of_memory]
    headings += [*(["compile, s"] if compiles else []), "time, s\n(rough)"]
    for heading in headings:
        table.add_column(heading, justify="left" if heading == "program" else "right")
    for cost in costs:
        row = [str(cost.runs), str(cost.rounds), str(cost.chunks), str(cost.lanes)]
        row += [f"{cost.memory / 1e6:.0f}"]
        row += [f"{cost.compile_seconds:.1f}"] if cost.compile_seconds is not None else []
        table.add_row(Text(cost.label), *row, f"{cost.seconds:.0f}")
    total = sum(cost.seconds for cost in costs)
    most = max(cost.memory for cost in costs) / 1e6
    return Lines(
        f"{len(plan.runs)} runs in {len(plan.groups)} groups, one compilation each; "
        f"axes: {', '.join(plan.axes) or 'none'}; seeds: {len(plan.study.seeds)}",
        table,
        f"about {total:.0f} s after compilation, {'' if compiles else 'at least '}{most:.0f} MB at a time "
        f"on {jax.device_count()} {jax.default_backend()} device(s)"
        + ("" if compiles else "; --compile asks the compiler for the memory"),
        *_resident_table(costs, engine.limit),
    )


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


def group_costs(engine: Engine, *, compiles: bool) -> list[Cost]:
    """The predicted cost of every group; as `plan_table`."""
    plan, peak = engine.plan, matrix_product_rate()
    work = units(plan, (), most=decide(engine, plan.groups, Asked()).runs)
    costs = []
    for group in plan.groups:
        own = [unit for unit in work if unit.group is group]
        simulation = engine.simulation(group)
        engine.check_memory(group)
        resident = simulation.resident()
        fits, took = fitting(resident, engine.limit), None
        width = min(own[0].width, fits * runs_mesh(own[0].width).size)
        rows = simulation.padded(width)
        memory = runs_mesh(rows).size * sum(resident.shared.values()) + rows * sum(resident.each.values())
        if compiles:
            engine.prepare(own)
            begun = time.perf_counter()
            compiled = engine.compiled(group)
            took = time.perf_counter() - begun
            width = compiled.width
            memory = runs_mesh(compiled.padded).size * program_memory(compiled.call)
        costs.append(
            Cost(
                f"{group.algorithm} ({_distinct(plan, group)})",
                len(group.members),
                simulation.rounds,
                sum(-(-len(unit.rows) // width) for unit in own),
                width,
                resident,
                fits,
                memory,
                plan.study.kind.seconds(plan, group, simulation, peak),
                took,
            )
        )
        simulation.release()
    return costs


def _distinct(plan: Plan, group: Group) -> str:
    """What tells a group's runs apart from other groups': their policy labels."""
    return ", ".join(dict.fromkeys(run.policy for run in plan.runs_of(group)))
