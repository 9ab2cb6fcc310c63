"""Runs a plan on this machine: group by group, chunk by chunk, in host-side segments of rounds."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple, Protocol

import jax
import jax.numpy as jnp
import numpy as np
import xarray as xr

from pausejax.simulation import Program, initial_params, play, start
from pausejax.sweep import store
from pausejax.sweep.build import Sources, build_hyper, build_program, build_world
from pausejax.sweep.plan import Plan


class Progress(Protocol):
    """Called after each segment with how many rounds × runs it has advanced."""

    def __call__(self, rounds_times_runs: int) -> None: ...


class Chunk(NamedTuple):
    """Runs of one group that are simulated side by side."""

    program: Program
    positions: tuple[int, ...]
    """Places in the plan's runs; padded by repeating the last one."""
    lanes: int
    """How many of `positions` are no padding."""


MAX_LANES = 256


def chunks(plan: Plan, sources: Sources, max_lanes: int = MAX_LANES) -> list[Chunk]:
    """Cuts each group into chunks of one size, so that a group compiles once."""
    found = []
    for group in plan.groups:
        program = build_program(plan, group, sources)
        parts = -(-len(group.members) // max_lanes)
        width = -(-len(group.members) // parts)
        for part in range(parts):
            members = group.members[part * width : (part + 1) * width]
            padding = (members[-1],) * (width - len(members))
            found.append(Chunk(program, members + padding, len(members)))
    return found


def run(plan: Plan, sources: Sources, progress: Progress | None = None) -> xr.Dataset:
    """Simulates every run of a plan and returns the labelled result, runs in the plan's order.

    Raises:
      SpecError: a group can't be built; nothing has been computed then.
    """
    work = chunks(plan, sources)
    parts: list[dict[str, np.ndarray]] = []
    order: list[int] = []
    for chunk in work:
        arrays = simulate_chunk(plan, chunk, sources, progress or (lambda _: None))
        kept = chunk.positions[: chunk.lanes]
        parts.append({name: array[: chunk.lanes] for name, array in arrays.items()})
        order.extend(kept)
    back = np.argsort(order)
    names = list(dict.fromkeys(name for part in parts for name in part))
    merged = {name: _stack([part[name] for part in parts], store.VARIABLES[name][2])[back] for name in names}
    return store.dataset(plan, range(len(plan.runs)), merged)


def simulate_chunk(plan: Plan, chunk: Chunk, sources: Sources, progress: Progress) -> dict[str, np.ndarray]:
    """Plays all rounds of one chunk; arrays as in `store.VARIABLES`, leading axis the chunk's runs."""
    study, program = plan.study, chunk.program
    runs = [plan.runs[position] for position in chunk.positions]
    world, hyper = build_world(plan, program, runs, sources), build_hyper(runs)
    params = initial_params(program.learning.model, world.seed) if program.learning else None
    state = start(program, world, hyper, params)
    records = []
    for first in range(1, study.rounds + 1, program.rounds_per_call):
        state, record = play(program, world, hyper, state, jnp.int32(first), jnp.int32(study.rounds))
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
    history["counts"], history["diverged_round"] = np.asarray(state.counts), np.asarray(state.diverged)
    if study.mode != "training":
        for name in store.LEARNING_VARIABLES:
            del history[name]
    return history


def _stack(arrays: Sequence[np.ndarray], fill: float) -> np.ndarray:
    """Concatenates along the runs; trailing axes of unlike length are padded with the fill value."""
    shape = np.max([array.shape[1:] for array in arrays], axis=0)

    def padded() -> Iterator[np.ndarray]:
        for array in arrays:
            widths = [(0, 0), *((0, int(n - have)) for n, have in zip(shape, array.shape[1:], strict=True))]
            yield np.pad(array, widths, constant_values=fill)

    return np.concatenate(list(padded()))
