"""Compiles a case for a device that is not present, and estimates the cost of a round from counts."""

import math
import tempfile
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
from jax.experimental import topologies

from gpu_model import cases, thunks
from gpu_model.count import Counting, Counts, Kernel
from gpu_model.hlo import Module
from gpu_model.targets import REACHED, TARGETS
from pausejax.data.host import DataCache
from pausejax.devices import compiler_options
from pausejax.federated.batches import num_steps
from pausejax.kinds import parse
from pausejax.study.plan import make_plan

SOURCES = DataCache()
_VALID_SHARE = 2 / 3
"""Assumed share of valid proposals of the annealer; `_walk` draws again after an invalid proposal."""


class Round(NamedTuple):
    """Launches of a program in one round of all its runs."""

    counts: Counts
    kernels: list[Kernel]
    """Kernels, the most expensive first; times are per round."""
    unknown: list[str]
    """Loops and conditionals that were assumed to run once."""
    memory: int
    """Bytes on each device: arguments, outputs and temporaries."""
    arguments: int
    least_bytes: float
    """Bytes that a round must read and write in any implementation."""
    module: Module


@cache
def devices(target: str, count: int = 1) -> tuple[jax.Device, ...]:
    """Returns devices for which programs can be compiled, although none is present."""
    described = topologies.get_topology_desc(
        topology_name=target,
        platform="cuda",
        target_config=TARGETS[target].config,
        topology=f"{count}x1x1",
    )
    return tuple(described.devices)


def simulation_of(
    case: cases.Case, runs: int, changes: dict[str, Any], on: tuple[jax.Device, ...] | None = None
) -> Any:
    """Returns the simulation of a case for some devices."""
    plan = make_plan(parse(cases.document(case, runs, changes)))
    (group,) = plan.groups
    return plan.study.kind.simulation(plan.study, group, SOURCES, on)


def compile_case(
    case: cases.Case,
    runs: int,
    *,
    target: str = "h100",
    changes: dict[str, Any] | None = None,
    options: dict[str, Any] | None = None,
    count: int = 1,
) -> Round:
    """Compiles a case and counts a round.

    Args:
      case: the study.
      runs: the number of runs side by side.
      target: the device, one of `TARGETS`.
      changes: changed values of the spec, by dotted key.
      options: options of the compiler, in addition to those of the package.
      count: the number of devices.
    """
    simulation = simulation_of(case, runs, changes or {}, devices(target, count))
    lowered = simulation.lower(runs)
    with tempfile.TemporaryDirectory() as folder:
        told = compiler_options("gpu") | {
            "xla_gpu_autotune_level": "0",  # autotuning would need the device
            "xla_dump_to": folder,
            "xla_dump_hlo_as_text": True,
            "xla_dump_hlo_module_re": ".*advance.*",
            **(options or {}),
        }
        compiled = lowered.compile(compiler_options=told)
        (dump,) = Path(folder).glob("*thunk_sequence_after_thunk_passes.txt")
        sequence = thunks.read(dump.read_text())
    module = Module(compiled.as_text())
    static = simulation_static(simulation)
    counting = Counting(module, TARGETS[target], trips_of(simulation), static.get("precision", "highest"))
    whole, rounds = counting.count(sequence), simulation.rounds_per_call
    counts = Counts()
    counts.add(whole, 1 / rounds)
    kernels = [k._replace(times=k.times / rounds) for k in counting.kernels]
    used = compiled.memory_analysis()
    return Round(
        counts,
        sorted(kernels, key=lambda k: -k.times * k.seconds),
        sorted(counting.unknown),
        used.argument_size_in_bytes
        + used.output_size_in_bytes
        + used.temp_size_in_bytes
        - used.alias_size_in_bytes,
        used.argument_size_in_bytes,
        least_bytes(simulation, runs) / count,
        module,
    )


def simulation_static(simulation: Any) -> dict[str, Any]:
    return getattr(simulation, "_static", {})


def trips_of(simulation: Any) -> dict[str, float]:
    """Returns assumed numbers of iterations of data-dependent loops, by their place in the program."""
    config = getattr(simulation, "config", None)
    if config is None:
        return {}
    steps = simulation_static(simulation).get("annealing_steps", 0)
    found = {
        r"jit\(advance\)/(shard_map/)?rounds/while$": float(config.rounds_per_call),
        # The best threshold is evaluated before the loop. Nearly always it is the only candidate.
        r"_best_set\)": 0.0,
        r"_anneal\)": math.ceil(steps / 16 / _VALID_SHARE),
        # This is an upper bound: short chains need fewer iterations.
        r"_ward\)": 3.0 * (config.num_clients - 1),
        r"evaluation/cond$": 1 / config.eval_every,
    }
    if config.learning:
        taken = np.asarray(num_steps(config.learning.training, simulation.first_world.data.size))
        # The client with the most steps decides, and most cohorts have one with many steps.
        found = {
            r"local_steps": float(taken.max()),
            r"add_in_turn": float(config.clients_per_round),
            **found,
        }
    return found


def least_bytes(simulation: Any, runs: int) -> float:
    """Returns the bytes of the state, of the samples of every step, and of the test set per evaluated
    round."""

    def size(tree: Any) -> float:
        return sum(math.prod(leaf.shape) * leaf.dtype.itemsize for leaf in jax.tree.leaves(tree))

    state = simulation.state_shapes(runs)
    config = getattr(simulation, "config", None)
    if config is None or not config.learning:
        return 2 * size(state)
    clients = size(state.memory.clients)
    share = config.clients_per_round / config.num_clients
    world, training = simulation.first_world, config.learning.training
    steps = float(np.mean(np.asarray(num_steps(training, world.data.size))))
    sample = world.data.inputs.nbytes / len(world.data.inputs)
    samples = runs * config.clients_per_round * steps * training.batch_size * sample
    evaluated = world.test.inputs.nbytes / config.eval_every
    return 2 * (size(state) - clients + share * clients) + samples + evaluated


def roofline(found: Round, target: str, precision: str = "highest") -> float:
    """Returns the least seconds of a round, at the bandwidth and peak that the maker states."""
    device = TARGETS[target]
    return max(found.least_bytes / device.bandwidth, found.counts.flops / device.peak[precision])


__all__ = ["REACHED", "Round", "compile_case", "devices", "least_bytes", "roofline", "simulation_of"]
