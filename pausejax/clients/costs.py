"""Estimates the costs of a group of runs before anything is computed: memory, and iterations of loops."""

import functools
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from pausejax.clients.inputs import Files, Hyper, StaticConfig
from pausejax.clients.record import Record
from pausejax.federated.batches import num_steps
from pausejax.policies.base import Clients, View
from pausejax.study.simulation import DeviceBytes, bytes_of

SimulationOfClients = Any
"""Type of a `ClientSimulation`; `Any`, because the module of `ClientSimulation` imports this module."""


def cohort_of(simulation: SimulationOfClients) -> tuple[int, bool]:
    """Returns the largest size of a cohort, and whether its clients' updates are stored separately."""
    world, hyper = simulation.argument_shapes(1)
    members, kept = cohort_shapes.eval_shape(simulation.config, hyper, world.files)
    return members.shape[0], kept.shape[0] > 0


@functools.partial(jax.jit, static_argnums=0)
def cohort_shapes(config: StaticConfig, hyper: Hyper, files: Files) -> tuple[jax.Array, jax.Array]:
    """Returns a cohort, and an array that is empty unless its clients' updates are stored separately.

    Callers use only the shapes of these two arrays. `jit` makes JAX cache the trace of each `StaticConfig`.
    So a second simulation of a study does not trace this function again.
    """
    clients, key, learning = jnp.ones(config.num_clients), jax.random.key(0), config.learning
    values = {name: of_runs[0] for name, of_runs in hyper.items()}
    policy = config.build(values, files)
    of_rows = learning and learning.build_aggregator(values | files).combine is not None
    kept = jnp.zeros(int(bool(policy.needs_updates or of_rows or config.max_at_work)))
    state = policy.init(key, Clients(clients, clients))
    view = View(jnp.int32(1), clients, lambda c: clients[c])
    return policy.select(key, state, view).members, kept


def turns(simulation: SimulationOfClients) -> Mapping[str, float]:
    """Returns a number for each named scope of the program.

    It is the number of iterations of a loop, or the share of calls that take a condition's costly branch.
    """
    config, data = simulation.config, simulation.first_world.data
    found = {"rounds": float(simulation.rounds_per_call)}
    if config.learning is None or data is None:
        return found
    steps = float(np.mean(num_steps(config.learning.training, data.size)))
    return found | {"local_steps": steps, "evaluation": 1 / config.eval_every, "add_in_turn": 1.0}


def device_bytes(simulation: SimulationOfClients) -> DeviceBytes:
    """Returns the bytes on each device while the runs are played, from shapes alone."""
    world, state = simulation.first_world, simulation.state_shapes(1)
    data = world.data
    shards, config = simulation.input_shards, simulation.config
    learning = config.learning
    inputs = -(-len(data.inputs) // shards) * bytes_of(data.inputs[:1]) if data else 0
    owners = (data.order, data.offset, data.size) if data else ()
    cohort, keeps_updates = cohort_of(simulation)
    # Each round records some numbers and the cohort. Records of two calls are in memory at once.
    record = 4 * (len(Record._fields) + cohort)
    per_run = {
        "parameters": bytes_of(state.params),
        "moments": bytes_of(state.memory),
        "state": bytes_of(state._replace(params=None, memory=None)),
        "records": 2 * simulation.rounds_per_call * record,
    }
    if learning and keeps_updates:
        per_run["updates"] = 4 * (cohort + config.max_at_work) * learning.num_parameters
    return DeviceBytes(
        {
            f"training data (1/{shards} of the inputs)" if shards > 1 else "training data": inputs
            + bytes_of(data.targets if data else ()),
            "test data": bytes_of(world.test),
            "partitions": bytes_of(owners),
            "tables": bytes_of(world.files),
        },
        per_run,
    )
