"""What a plan will cost: compiles, memory read off the compiled programs, and a rough time."""

import time
from typing import NamedTuple

import jax
import jax.numpy as jnp
from rich import box
from rich.console import Group as Lines
from rich.table import Table
from rich.text import Text

from pausejax.data.host import Sources
from pausejax.devices import runs_mesh
from pausejax.engine.engine import Engine, most_runs
from pausejax.engine.memory import program_memory
from pausejax.engine.schedule import cut, units
from pausejax.study.study import Group, Plan


class Cost(NamedTuple):
    """The predicted cost of one group."""

    label: str
    runs: int
    rounds: int
    chunks: int
    lanes: int
    """Runs side by side in a chunk."""
    compile_seconds: float
    memory: int
    """Bytes on all devices: arguments (the data among them), outputs and temporaries of the program."""
    seconds: float


def plan_table(plan: Plan, sources: Sources) -> Lines:
    """The costs of all groups as a table; compiles every program, runs none of them."""
    table = Table(box=box.SIMPLE_HEAD)
    for heading in (
        "program",
        "runs",
        "rounds",
        "chunks",
        "runs a chunk",
        "compile, s",
        "memory, MB",
        "time, s (rough)",
    ):
        table.add_column(heading, justify="left" if heading == "program" else "right")
    costs = group_costs(plan, sources)
    for cost in costs:
        table.add_row(
            Text(cost.label),
            str(cost.runs),
            str(cost.rounds),
            str(cost.chunks),
            str(cost.lanes),
            f"{cost.compile_seconds:.1f}",
            f"{cost.memory / 1e6:.0f}",
            f"{cost.seconds:.0f}",
        )
    total = sum(cost.seconds for cost in costs)
    return Lines(
        f"{len(plan.runs)} runs in {len(plan.groups)} groups, one compilation each; "
        f"axes: {', '.join(plan.axes) or 'none'}; seeds: {len(plan.study.seeds)}",
        table,
        f"about {total:.0f} s after compilation, {max(cost.memory for cost in costs) / 1e6:.0f} MB at a time "
        f"on {jax.device_count()} {jax.default_backend()} device(s)",
    )


def group_costs(plan: Plan, sources: Sources) -> list[Cost]:
    """Compiles each group's program and predicts its cost."""
    peak = matrix_product_rate()
    costs = []
    engine = Engine(plan, sources)
    work = units(plan, (), most=most_runs())
    for group in plan.groups:
        own = [unit for unit in work if unit.group is group]
        engine.prepare(own)
        begun = time.perf_counter()
        compiled = engine.compiled(group)
        took = time.perf_counter() - begun
        simulation = engine.simulation(group)
        costs.append(
            Cost(
                f"{group.algorithm} ({_distinct(plan, group)})",
                len(group.members),
                simulation.rounds,
                sum(len(cut(unit, compiled.width, compiled.padded)) for unit in own),
                compiled.width,
                took,
                runs_mesh(compiled.padded).size * program_memory(compiled.call),
                plan.study.kind.seconds(plan, group, simulation, peak),
            )
        )
        simulation.release()
    return costs


def matrix_product_rate(size: int = 768) -> float:
    """FLOP/s of a float32 matrix product on the default device."""
    matrix = jnp.ones((size, size))
    product = jax.jit(jnp.matmul)
    product(matrix, matrix).block_until_ready()
    begun = time.perf_counter()
    for _ in range(5):
        product(matrix, matrix).block_until_ready()
    return 5 * 2 * size**3 / (time.perf_counter() - begun)


def _distinct(plan: Plan, group: Group) -> str:
    """What tells a group's runs apart from other groups': their policy labels."""
    return ", ".join(dict.fromkeys(run.policy for run in plan.runs_of(group)))
