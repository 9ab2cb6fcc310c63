"""What a plan will cost: runs, chunks, memory off shapes or off the compiled programs, a rough time."""

import math
import time
from typing import NamedTuple

import jax
from rich import box
from rich.console import Group as Lines
from rich.table import Table
from rich.text import Text

from pausejax.data.host import Sources
from pausejax.devices import padded, runs_mesh
from pausejax.engine.engine import Engine
from pausejax.engine.memory import program_memory
from pausejax.engine.schedule import units
from pausejax.engine.speed import matrix_product_rate
from pausejax.engine.tuning import Asked, decide
from pausejax.study.simulation import Simulation
from pausejax.study.study import Group, Plan


class Cost(NamedTuple):
    """The predicted cost of one group."""

    label: str
    runs: int
    rounds: int
    chunks: int
    lanes: int
    """Runs side by side in a chunk."""
    shared: int
    """Bytes on each device that all runs share: samples, partitions, tables."""
    memory: int
    """Bytes on all devices: from shapes, arguments and states without temporaries; compiled, all of it."""
    seconds: float
    compile_seconds: float | None = None


def plan_table(plan: Plan, sources: Sources, *, compiles: bool = False) -> Lines:
    """The costs of all groups as a table; runs nothing.

    Args:
      plan: the study.
      sources: where data come from.
      compiles: read memory and compile time off the compiled programs, and not off shapes.

    Raises:
      SpecError: a group can't be built.
    """
    costs = group_costs(plan, sources, compiles=compiles)
    table = Table(box=box.SIMPLE_HEAD)
    of_memory = "memory, MB" if compiles else "memory, MB\n(at least)"
    headings = ["program", "runs", "rounds", "chunks", "runs a\nchunk", "shared\ndata, MB", of_memory]
    headings += [*(["compile, s"] if compiles else []), "time, s\n(rough)"]
    for heading in headings:
        table.add_column(heading, justify="left" if heading == "program" else "right")
    for cost in costs:
        row = [str(cost.runs), str(cost.rounds), str(cost.chunks), str(cost.lanes)]
        row += [f"{cost.shared / 1e6:.1f}", f"{cost.memory / 1e6:.0f}"]
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
    )


def group_costs(plan: Plan, sources: Sources, *, compiles: bool) -> list[Cost]:
    """The predicted cost of every group; as `plan_table`."""
    peak = matrix_product_rate()
    engine = Engine(plan, sources)
    work = units(plan, (), most=decide(engine, plan.groups, Asked()).runs)
    costs = []
    for group in plan.groups:
        own = [unit for unit in work if unit.group is group]
        simulation = engine.simulation(group)
        width, took = own[0].width, None
        devices = runs_mesh(padded(width)).size
        memory = devices * simulation.resident_bytes() + _state_bytes(simulation, padded(width))
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
                simulation.resident_bytes(),
                memory,
                plan.study.kind.seconds(plan, group, simulation, peak),
                took,
            )
        )
        simulation.release()
    return costs


def _state_bytes(simulation: Simulation, width: int) -> int:
    shapes = jax.tree.leaves(simulation.state_shapes(width))
    return sum(math.prod(leaf.shape) * leaf.dtype.itemsize for leaf in shapes)


def _distinct(plan: Plan, group: Group) -> str:
    """What tells a group's runs apart from other groups': their policy labels."""
    return ", ".join(dict.fromkeys(run.policy for run in plan.runs_of(group)))
