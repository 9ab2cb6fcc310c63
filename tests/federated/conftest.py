"""A few rounds of learning on a few clients, put together from parts as a study does it."""

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from pausejax import data, parts
from pausejax.federated import batches
from pausejax.federated.build import learning_of
from pausejax.federated.learning import Learning, Rates, init_memory, init_weights, step_server
from pausejax.federated.training import Jobs, train

STATIC = {
    "model": "mlp",
    "task": "classification",
    "optimizer": "sgd",
    "server_optimizer": "fedavg",
    "batch_statistics": "private",
    "noise_generator": "threefry",
    "precision": "highest",
    "batch_size": 8,
    "local_epochs": 1,
    "max_steps": 100,
    "persist_optimizer": False,
    "private": False,
    "clip": "coordinate",
}


# What is static comes first, so that equal settings share a program.
@partial(jax.jit, static_argnums=0)
def _init(model, keys):
    return jax.vmap(model.init)(keys)


@partial(jax.jit, static_argnums=0)
def _train(learning, data, rates, weights, clients, jobs):
    partition = jnp.zeros(1, jnp.int32)
    return train(learning, data, partition, weights, clients, rates, jobs, keep_updates=True)


@jax.jit
def _jobs(members, weight, round, epsilon):
    count = members.shape[0]
    keys = jax.random.split(jax.random.fold_in(jax.random.key(5), round), 2 * count)
    run, epsilons = jnp.zeros(count, jnp.int32), jnp.full(count, epsilon)
    return Jobs(run, members, weight, keys[:count], keys[count:], epsilons)


@partial(jax.jit, static_argnums=0)
def _step(learning, rates, weights, update, state, arrived):
    return step_server(learning, weights, update, state, rates, arrived)


class Setting(NamedTuple):
    learning: Learning
    dataset: data.Dataset
    partition: data.partition.Partition
    data: batches.TrainingData
    rates: Rates
    clients: int

    def begin(self, seed=0):
        """One run's initial weights and memory, leading axis [1]."""
        weights = _init(self.learning.model, jax.random.key(seed)[None])
        memory = init_memory(self.learning, weights.params, self.rates, self.clients)
        return init_weights(self.learning, weights, self.clients), memory

    def jobs(self, members, round=1, epsilon=1.0):
        members = np.asarray(members, np.int32)
        weight = self.partition.sizes[members].astype(np.float32)
        return _jobs(members, weight / weight.sum(), np.int32(round), np.float32(epsilon))

    def train(self, weights, jobs, clients=None):
        return _train(self.learning, self.data, self.rates, weights, clients, jobs)

    def step(self, weights, update, state, arrived=True):
        return _step(self.learning, self.rates, weights, update, state, jnp.full(1, arrived))


def setting(dataset, registry=None, clients=3, **values):
    """Puts learning together; `values` override `STATIC` and the traced parameters."""
    static = STATIC | values
    shares = data.partition.split("iid", dataset.train_targets, clients, 0, batch_size=static["batch_size"])
    learning = learning_of(
        registry or parts.registered_parts(), static, dataset, int(shares.sizes.max()), proximal=False
    )
    on_host = batches.training_data(
        batches.flat(dataset.train_inputs),
        jnp.asarray(dataset.train_targets),
        batches.scale(dataset),
        [shares],
    )

    def own(part):
        names = part.part.parameters
        return {n: jnp.full(1, values.get(n, names[n].default), jnp.float32) for n in part.traced}

    rates = Rates(
        jnp.full(1, values.get("learning_rate", 0.1)),
        jnp.zeros(1),
        jnp.full(1, values.get("sensitivity", 0.02)),
        own(learning.training.optimizer),
        own(learning.server),
    )
    return Setting(learning, dataset, shares, jax.tree.map(jnp.asarray, on_host), rates, clients)


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
