"""What a plan will cost: compiles, memory read off the compiled programs, and a rough time."""

import functools
import time
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from rich import box
from rich.console import Group as Lines
from rich.table import Table

from pausejax.clients.build import Sources
from pausejax.engine import engine as execute
from pausejax.engine.memory import program_memory
from pausejax.engine.schedule import cut, units
from pausejax.ensemble import kind as ensemble
from pausejax.federated.batches import num_steps, prepare
from pausejax.study.plan import Group, Plan

# Measured on two CPU cores with small networks: the share of the matrix-product peak that local training
# reaches, seconds of everything else per round and run, and seconds per step of annealing.
_EFFICIENCY = 0.2
_ROUND_SECONDS = {"training": 1e-4, "bandit": 1e-5}
_ANNEALING_SECONDS = 5e-7


class Cost(NamedTuple):
    """The predicted cost of one group."""

    label: str
    runs: int
    chunks: int
    lanes: int
    """Runs side by side in a chunk."""
    compile_seconds: float
    memory: int
    """Bytes on all devices: arguments (the data among them), outputs and temporaries of the program."""
    seconds: float


def plan_table(plan: Plan, sources: Sources) -> Lines:
    """The costs of all groups as a table; compiles every program, runs none of them."""
    if plan.study.mode == "ensemble":
        return ensemble.plan_table(plan, sources)
    table = Table(box=box.SIMPLE_HEAD)
    for heading in (
        "program",
        "runs",
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
            cost.label,
            str(cost.runs),
            str(cost.chunks),
            str(cost.lanes),
            f"{cost.compile_seconds:.1f}",
            f"{cost.memory / 1e6:.0f}",
            f"{cost.seconds:.0f}",
        )
    rounds = plan.study.rounds
    total = sum(cost.seconds for cost in costs)
    return Lines(
        f"{len(plan.runs)} runs of {rounds} rounds in {len(plan.groups)} groups, one compilation each; "
        f"axes: {', '.join(plan.axes) or 'none'}; seeds: {len(plan.study.seeds)}",
        table,
        f"about {total:.0f} s after compilation, {max(cost.memory for cost in costs) / 1e6:.0f} MB at a time "
        f"on {jax.device_count()} {jax.default_backend()} device(s)",
    )


def group_costs(plan: Plan, sources: Sources) -> list[Cost]:
    """Compiles each group's program and predicts its cost."""
    peak = matrix_product_rate() if plan.study.mode == "training" else 1.0
    costs = []
    engine = execute.Engine(plan, sources)
    work = units(plan, (), most=execute.most_runs())
    for group in plan.groups:
        own = [unit for unit in work if unit.group is group]
        engine.prepare(own)
        begun = time.perf_counter()
        compiled = engine.compiled(group)
        took = time.perf_counter() - begun
        chunks = [chunk for unit in own for chunk in cut(unit, (), compiled.width, compiled.padded)]
        runs = len(group.members)
        annealing = _ANNEALING_SECONDS * group.static.get("annealing_steps", 0)
        seconds = plan.study.rounds * runs * (_ROUND_SECONDS[plan.study.mode] + annealing)
        if plan.study.mode == "training":
            flops = _flops_per_round(engine.surroundings(group))
            seconds += plan.study.rounds * runs * flops / (_EFFICIENCY * peak)
        devices = execute.runs_mesh(compiled.padded).size
        costs.append(
            Cost(
                f"{group.algorithm} ({_distinct(plan, group)})",
                runs,
                len(chunks),
                compiled.width,
                took,
                devices * program_memory(compiled.call),
                seconds,
            )
        )
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


def _flops_per_round(around: execute.Surroundings) -> float:
    """Local training (three forward passes' worth a sample and step) and evaluation of one run."""
    program, world = around.program, around.world
    learning = program.learning
    assert learning is not None and world.test is not None and world.data is not None
    steps = float(np.mean(num_steps(learning.training, world.data.size)))
    test = world.test
    inputs = jax.eval_shape(functools.partial(prepare, learning), test.inputs[0, :1], test.mean, test.std)
    weights = jax.eval_shape(learning.model.init, jax.random.key(0))
    forward = jax.jit(learning.model.apply).lower(*weights, inputs)
    per_sample = float((forward.cost_analysis() or {}).get("flops", 2 * learning.num_parameters))
    slots = program.num_clients if program.policy == "fedavg" else program.clients_per_round
    trained = slots * steps * learning.training.batch_size * 3 * per_sample
    return trained + test.exists.size * per_sample / program.eval_every


def _distinct(plan: Plan, group: Group) -> str:
    """What tells a group's runs apart from other groups': their policy labels."""
    return ", ".join(dict.fromkeys(plan.runs[position].policy for position in group.members))
