"""What a plan will cost: compiles, memory read off the compiled programs, and a rough time."""

import time
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from rich import box
from rich.console import Group as Lines
from rich.table import Table

from pausejax.federated.training import num_steps
from pausejax.sweep import ensemble, execute
from pausejax.sweep.build import Sources, build_world
from pausejax.sweep.plan import Plan

# Measured on two CPU cores with small networks: the share of the matrix-product peak that local training
# reaches, seconds of everything else per round and run, and seconds per step of annealing.
_EFFICIENCY = 0.2
_ROUND_SECONDS = {"training": 1e-4, "bandit": 1e-5}
_ANNEALING_SECONDS = 1e-6


class Cost(NamedTuple):
    """The predicted cost of one group."""

    label: str
    runs: int
    chunks: int
    compile_seconds: float
    memory: int
    """Bytes on all devices: arguments (the data among them), outputs and temporaries of the program."""
    seconds: float


def plan_table(plan: Plan, sources: Sources) -> Lines:
    """The costs of all groups as a table; compiles every program, runs none of them."""
    if plan.study.mode == "ensemble":
        return ensemble.plan_table(plan, sources)
    table = Table(box=box.SIMPLE_HEAD)
    for heading in ("program", "runs", "chunks", "compile, s", "memory, MB", "time, s (rough)"):
        table.add_column(heading, justify="left" if heading == "program" else "right")
    costs = group_costs(plan, sources)
    for cost in costs:
        table.add_row(
            cost.label,
            str(cost.runs),
            str(cost.chunks),
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
    work = execute.chunks(plan, sources)
    for group in plan.groups:
        own = [chunk for chunk in work if chunk.group is group]
        program = own[0].program
        begun = time.perf_counter()
        compiled = execute.lower_program(plan, own[0], sources).compile()
        took = time.perf_counter() - begun
        used = compiled.memory_analysis()
        assert used is not None
        # XLA counts one device, on which the shared data lie too; donated arguments are their own outputs.
        memory = execute.runs_mesh(len(own[0].positions)).size * (
            used.argument_size_in_bytes
            + used.output_size_in_bytes
            + used.temp_size_in_bytes
            - used.alias_size_in_bytes
        )
        lanes = sum(chunk.lanes for chunk in own)
        annealing = _ANNEALING_SECONDS * group.static.get("annealing_steps", 0)
        seconds = plan.study.rounds * lanes * (_ROUND_SECONDS[plan.study.mode] + annealing)
        if program.learning:
            seconds += (
                plan.study.rounds * lanes * _flops_per_round(plan, own[0], sources) / (_EFFICIENCY * peak)
            )
        label = f"{own[0].program.policy} ({_distinct(plan, own[0])})"
        costs.append(Cost(label, lanes, len(own), took, memory, seconds))
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


def _flops_per_round(plan: Plan, chunk: execute.Chunk, sources: Sources) -> float:
    """Local training (three forward passes' worth a sample and step) and evaluation of one run."""
    program = chunk.program
    world = build_world(plan, program, chunk.positions, chunk.group, sources)
    learning = program.learning
    assert learning is not None and world.test is not None and world.data is not None
    steps = float(np.mean(num_steps(learning.training, world.data.size)))
    forward = jax.jit(learning.model.apply).lower(
        jax.eval_shape(learning.model.init, jax.random.key(0)), jnp.zeros((1, *learning.image_shape))
    )
    per_sample = float((forward.cost_analysis() or {}).get("flops", 2 * learning.num_parameters))
    slots = program.num_clients if program.policy == "fedavg" else program.clients_per_round
    trained = slots * steps * learning.training.batch_size * 3 * per_sample
    return trained + world.test.labels.size * per_sample / program.eval_every


def _distinct(plan: Plan, chunk: execute.Chunk) -> str:
    """What tells a group's runs apart from other groups': their policy labels."""
    return ", ".join(dict.fromkeys(plan.runs[position].policy for position in chunk.positions))
