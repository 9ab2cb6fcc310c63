"""A rough cost of a group of runs, before anything is computed."""

import functools
from typing import Any

import jax
import numpy as np

from pausejax.clients.simulation import ClientSimulation
from pausejax.federated.batches import HeldOut, num_steps, prepare
from pausejax.federated.learning import Learning
from pausejax.federated.modules import Model
from pausejax.study.study import Group, Plan

FORWARDS = 3
"""Forward passes that a training step is worth."""

# Measured on two CPU cores with small networks: the share of the matrix-product peak that local training
# reaches, seconds of everything else per round and run, and seconds per step of annealing.
_EFFICIENCY = 0.2
_ROUND_SECONDS = {"training": 1e-4, "bandit": 1e-5}
_ANNEALING_SECONDS = 5e-7


def seconds(plan: Plan, group: Group, simulation: ClientSimulation, peak: float) -> float:
    """A rough time: local training and evaluation at a share of the peak, and all else by the round."""
    work = plan.study.rounds * len(group.members)
    annealing = _ANNEALING_SECONDS * group.static.get("annealing_steps", 0)
    spent = work * (_ROUND_SECONDS[plan.study.mode] + annealing)
    return spent + work * _flops_per_round(simulation) / (_EFFICIENCY * peak)


def _flops_per_round(simulation: ClientSimulation) -> float:
    """Local training (three forward passes' worth a sample and step) and evaluation of one run."""
    program, world = simulation.program, simulation.world
    learning = program.learning
    if learning is None or world.test is None or world.data is None:
        return 0.0
    steps = float(np.mean(num_steps(learning.training, world.data.size)))
    per_sample = flops_per_sample(learning, world.test)
    trained = simulation.slots() * steps * learning.training.batch_size * FORWARDS * per_sample
    return trained + world.test.exists.size * per_sample / program.eval_every


def flops_per_sample(learning: Learning, test: HeldOut) -> float:
    """Of a forward pass."""
    sample = jax.ShapeDtypeStruct((1, test.inputs.shape[-1]), test.inputs.dtype)
    inputs = jax.eval_shape(functools.partial(prepare, learning), sample, test.mean, test.std)
    return _flops_of(learning.model, inputs.shape, inputs.dtype) or 2 * learning.num_parameters


@functools.cache
def _flops_of(model: Model, shape: tuple[int, ...], dtype: Any) -> float:
    """Of a forward pass, as XLA counts them; 0 where it does not."""
    weights = jax.eval_shape(model.init, jax.random.key(0))
    forward = jax.jit(model.apply).lower(*weights, jax.ShapeDtypeStruct(shape, dtype))
    return float((forward.cost_analysis() or {}).get("flops", 0.0))
