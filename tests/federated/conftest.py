"""A few rounds of learning on a few clients, put together from parts as a study does it."""

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree

from pausejax import data, parts, privacy  # noqa: F401, privacy registers its mechanisms
from pausejax.federated import batches
from pausejax.federated.algorithms import Arrivals
from pausejax.federated.build import learning_of
from pausejax.federated.learning import Learning
from pausejax.federated.server import init_memory, init_weights, step_server
from pausejax.federated.training import Jobs, train

STATIC = {
    "model": "mlp",
    "task": "classification",
    "optimizer": "sgd",
    "server_optimizer": "fedavg",
    "batch_statistics": "private",
    "precision": "highest",
    "batch_size": 8,
    "local_epochs": 1,
    "max_steps": 100,
    "persist_optimizer": False,
    "federated_algorithm": "fedavg",
    "aggregator": "mean",
    "mechanism": "none",
}
NO_DECAY = 50.0
"""Of the privacy budget: all of it is spent in the first release, so ε_1 = ε̄ in float32."""


# What is static comes first, so that equal settings share a program.
@partial(jax.jit, static_argnums=0)
def _init(model, keys):
    return jax.vmap(model.init)(keys)


@partial(jax.jit, static_argnums=(0, 1))
def _train(learning, mechanism, data, hyper, weights, memory, jobs):
    partition = jnp.zeros(1, jnp.int32)
    return train(learning, mechanism, data, partition, weights, memory, hyper, {}, jobs, keep_updates=True)


@jax.jit
def _jobs(members, weight, round):
    count = members.shape[0]
    keys = jax.random.split(jax.random.fold_in(jax.random.key(5), round), 2 * count)
    run, number = jnp.zeros(count, jnp.int32), jnp.ones(count, jnp.int32)
    return Jobs(run, members, weight, keys[:count], keys[count:], number)


@partial(jax.jit, static_argnums=0)
def _step(learning, hyper, weights, mean, state, arrived, anyone):
    return step_server(learning, weights, mean, state, hyper, {}, arrived, anyone)


class Setting(NamedTuple):
    learning: Learning
    mechanism: parts.Bound
    dataset: data.Dataset
    partition: data.partition.Partition
    data: batches.TrainingData
    hyper: dict[str, jax.Array]
    clients: int

    def begin(self, seed=0):
        """One run's initial weights and memory, leading axis [1]."""
        weights = _init(self.learning.model, jax.random.key(seed)[None])
        memory = init_memory(self.learning, weights.params, self.hyper, {}, self.clients)
        return init_weights(self.learning, weights, self.clients), memory

    def jobs(self, members, round=1):
        members = np.asarray(members, np.int32)
        weight = self.partition.sizes[members].astype(np.float32)
        return _jobs(members, weight / weight.sum(), np.int32(round))

    def train(self, weights, jobs, memory=None):
        memory = self.begin()[1] if memory is None else memory
        return _train(self.learning, self.mechanism, self.data, self.hyper, weights, memory, jobs)

    def step(self, weights, mean, state, arrived=None, anyone=True):
        arrived = arrived or Arrivals(*[jnp.ones((1, 1))] * 3)
        return _step(self.learning, self.hyper, weights, mean, state, arrived, jnp.full(1, anyone))

    def unravel(self, uploads):
        """Uploads, [n, d], as the weights that they are of."""
        example = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), self.learning.sent)
        return jax.jit(jax.vmap(ravel_pytree(example)[1]))(uploads)


def setting(dataset, registry=None, clients=3, **values):
    """Puts learning together; `values` override `STATIC` and the traced parameters."""
    static = STATIC | values
    shares = data.partition.split("iid", dataset.train_targets, clients, 0, batch_size=static["batch_size"])
    registry = registry or parts.registered_parts()
    mechanism = parts.bind(registry.get("mechanism", static["mechanism"]), static, ["budget_decay"])
    learning = learning_of(registry, static, dataset, int(shares.sizes.max()), traced=["proximal_weight"])
    on_host = batches.training_data(
        batches.flat(dataset.train_inputs),
        jnp.asarray(dataset.train_targets),
        batches.scale(dataset),
        [shares],
    )

    bound = (mechanism, learning.training.optimizer, learning.server, learning.algorithm, learning.aggregator)
    known = {"learning_rate": 0.1, "budget_decay": NO_DECAY, "proximal_weight": 0.0}
    for part in bound:
        known |= {name: p.default for name, p in part.part.parameters.items() if name in part.traced}
    hyper = {name: jnp.full(1, values.get(name, value), jnp.float32) for name, value in known.items()}
    on_device = jax.tree.map(jnp.asarray, on_host)
    return Setting(learning, mechanism, dataset, shares, on_device, hyper, clients)


@pytest.fixture(scope="session")
def study():
    """The function `setting`."""
    return setting


@pytest.fixture(scope="session")
def blobs():
    """75 points of three classes in five dimensions, and 12 to test on."""
    random = np.random.default_rng(0)
    labels = np.arange(87) % 3
    inputs = random.normal(size=(87, 5)) + 2 * np.eye(5)[labels]
    made = data.Dataset(inputs[:75], labels[:75], inputs[75:], labels[75:])
    return data.checked(made, "blobs", "blobs")


@pytest.fixture(autouse=True)
def _strict():
    with jax.numpy_dtype_promotion("strict"):
        yield
