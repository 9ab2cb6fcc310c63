"""Runs a plan on this machine: group by group, chunk by chunk, in host-side segments of rounds."""

import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple, Protocol

import jax
import jax.numpy as jnp
import numpy as np
import xarray as xr
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from pausejax.simulation import Hyper, Program, World, initial_params, play, runs_mesh, shardings, start
from pausejax.sweep import ensemble, store
from pausejax.sweep.build import Sources, build_hyper, build_program, build_world
from pausejax.sweep.plan import Group, Plan
from pausejax.sweep.spec import SpecError


class Progress(Protocol):
    """Called after each segment with how many rounds × runs it has advanced."""

    def __call__(self, rounds_times_runs: int) -> None: ...


class Chunk(NamedTuple):
    """Runs of one group that are simulated side by side."""

    program: Program
    group: Group
    positions: tuple[int, ...]
    """Places in the plan's runs; padded by repeating the last one."""
    lanes: int
    """How many of `positions` are no padding."""


MAX_LANES = 256


def chunks(plan: Plan, sources: Sources) -> list[Chunk]:
    """Cuts each group into chunks of one size, so that a group compiles once.

    Raises:
      SpecError: a group can't be built.
    """
    found = []
    for group in plan.groups:
        program = build_program(plan, group, sources)
        parts = -(-len(group.members) // MAX_LANES)
        width = -(-len(group.members) // parts)
        width += -width % runs_mesh(width).size
        for first in range(0, len(group.members), width):
            members = group.members[first : first + width]
            padding = (members[-1],) * (width - len(members))
            found.append(Chunk(program, group, members + padding, len(members)))
    return found


def run(plan: Plan, sources: Sources, progress: Progress | None = None) -> xr.Dataset:
    """Simulates every run of a plan and returns the labelled result, runs in the plan's order.

    Raises:
      SpecError: a group can't be built; nothing has been computed then.
    """
    progress = progress or (lambda _: None)
    if plan.study.mode == "ensemble":
        return ensemble.run(plan, sources, progress)
    work = chunks(plan, sources)
    parts: list[dict[str, np.ndarray]] = []
    # XLA compiles outside the interpreter's lock, so programs compile side by side while others run.
    with ThreadPoolExecutor(os.cpu_count()) as compilers:
        first_of = {id(chunk.group): chunk for chunk in reversed(work)}
        # Every program is traced before the first one runs: what a policy refuses, it refuses now.
        lowered = {key: lower_program(plan, chunk, sources) for key, chunk in first_of.items()}
        order_of_use = dict.fromkeys(id(chunk.group) for chunk in work)
        compiled = {key: compilers.submit(lowered[key].compile) for key in order_of_use}
        try:
            for chunk in work:
                program = compiled[id(chunk.group)].result()
                arrays = simulate_chunk(plan, chunk, program, sources, progress)
                parts.append({name: array[: chunk.lanes] for name, array in arrays.items()})
        except BaseException:
            compilers.shutdown(wait=False, cancel_futures=True)
            raise
    order = [position for chunk in work for position in chunk.positions[: chunk.lanes]]
    back = np.argsort(order)
    names = list(dict.fromkeys(name for part in parts for name in part))
    merged = {name: _stack([part[name] for part in parts], store.VARIABLES[name][2])[back] for name in names}
    return store.dataset(plan, range(len(plan.runs)), merged)


def lower_program(plan: Plan, chunk: Chunk, sources: Sources) -> jax.stages.Lowered:
    """Traces `play` for the chunks of one group.

    Raises:
      SpecError: the policy refuses the network, or a file that a run needs can't be read.
    """
    program = chunk.program
    world, hyper, mesh = _inputs(plan, chunk, sources)
    params = jax.eval_shape(initial_params, program.learning.model, world.seed) if program.learning else None
    state = jax.eval_shape(start, program, world, hyper, params)
    split = shardings(mesh)[1]
    state = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=split), state)
    try:
        return play.lower(program, mesh, world, hyper, state, *_rounds(mesh, 1, 1))
    except ValueError as error:
        raise SpecError([f"policy {plan.runs[chunk.positions[0]].policy}: {error}"]) from None


def simulate_chunk(
    plan: Plan, chunk: Chunk, compiled: jax.stages.Compiled, sources: Sources, progress: Progress
) -> dict[str, np.ndarray]:
    """Plays all rounds of one chunk; arrays as in `store.VARIABLES`, leading axis the chunk's runs."""
    study, program = plan.study, chunk.program
    world, hyper, mesh = _inputs(plan, chunk, sources)
    params = initial_params(program.learning.model, world.seed) if program.learning else None
    state = jax.device_put(start(program, world, hyper, params), shardings(mesh)[1])
    records = []
    for first in range(1, study.rounds + 1, program.rounds_per_call):
        state, record = compiled(world, hyper, state, *_rounds(mesh, first, study.rounds))
        played = min(program.rounds_per_call, study.rounds + 1 - first)
        records.append(jax.tree.map(lambda leaf, n=played: np.moveaxis(np.asarray(leaf[:n]), 0, 1), record))
        progress(played * chunk.lanes)
    history = {
        name: np.concatenate([getattr(record, name) for record in records], axis=1)
        for name in records[0]._fields
    }
    evaluated = store.evaluated_rounds(study.rounds, study.eval_every) - 1
    for name in ("test_accuracy", "test_loss"):
        history[name] = history[name][:, evaluated]
    history["elapsed"] = np.cumsum(history["round_latency"], axis=1, dtype=np.float64)
    history["counts"], history["diverged_round"] = np.asarray(state.bandit.counts), np.asarray(state.diverged)
    absent = () if study.mode == "training" else store.LEARNING_VARIABLES
    for name in (*absent, *(() if study.selection_gap else ("selection_gap",))):
        del history[name]
    return history


def _inputs(plan: Plan, chunk: Chunk, sources: Sources) -> tuple[World, Hyper, Mesh]:
    mesh = runs_mesh(len(chunk.positions))
    whole, split = shardings(mesh)
    world = build_world(plan, chunk.program, chunk.positions, chunk.group, sources)
    hyper = build_hyper([plan.runs[position] for position in chunk.positions])
    return World(*map(jax.device_put, world, whole)), jax.device_put(hyper, split), mesh


def _rounds(mesh: Mesh, first: int, last: int) -> tuple[jax.Array, jax.Array]:
    everywhere = NamedSharding(mesh, PartitionSpec())
    return jax.device_put(jnp.int32(first), everywhere), jax.device_put(jnp.int32(last), everywhere)


def _stack(arrays: Sequence[np.ndarray], fill: float) -> np.ndarray:
    """Concatenates along the runs; trailing axes of unlike length are padded with the fill value."""
    shape = np.max([array.shape[1:] for array in arrays], axis=0)

    def padded() -> Iterator[np.ndarray]:
        for array in arrays:
            widths = [(0, 0), *((0, int(n - have)) for n, have in zip(shape, array.shape[1:], strict=True))]
            yield np.pad(array, widths, constant_values=fill)

    return np.concatenate(list(padded()))
