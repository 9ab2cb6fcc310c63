"""The static half of learning: what shapes the training program. A change of any of it compiles anew."""

import dataclasses
import itertools
from collections.abc import Callable
from functools import partial
from typing import Any, Literal, NamedTuple, get_args

import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree

from pausejax import parts
from pausejax.federated.modules import Model, Params, Weights
from pausejax.federated.optimizers import adam, transformation
from pausejax.federated.placement import ConvVariant, Placement
from pausejax.federated.precision import Precision
from pausejax.federated.servers import fedavg
from pausejax.federated.tasks import Task
from pausejax.parts import Bound
from pausejax.privacy import Clip, NoiseGenerator, privatize

BatchStatistics = Literal["private", "clear", "clear_layers", "local"]
BATCH_STATISTICS: tuple[str, ...] = get_args(BatchStatistics)

_ADAM = parts.bind(parts.find("optimizer", adam.__name__), {})
_FEDAVG = parts.bind(parts.find("server_optimizer", fedavg.__name__), {})


class Rates(NamedTuple):
    """Traced hyper-parameters of learning, float32 [R] each."""

    learning_rate: jax.Array
    proximal_weight: jax.Array
    sensitivity: jax.Array
    optimizer: dict[str, jax.Array]
    """The local optimizer's own, by name."""
    server: dict[str, jax.Array]
    """The server optimizer's own, by name."""
    tables: dict[str, jax.Array] = {}  # noqa: RUF012, never written to
    """What the optimizers read from files, float32 [rows, columns] by name; the same for all runs."""


class Memory(NamedTuple):
    """What learning remembers from round to round, besides the global models; runs first."""

    clients: Any
    """The clients' optimizer states, pytree [R, K, ...], if they persist, else None."""
    server: Any
    """The server optimizers' states, pytree [R, ...]."""
    trained: jax.Array | None = None
    """bool [R, K], whose statistics are those of a training that has reached the server; None if clients keep
    none."""


@dataclasses.dataclass(frozen=True)
class LocalTraining:
    """How clients train."""

    batch_size: int = 20
    local_epochs: int = 1
    max_steps: int = 100
    optimizer: Bound = _ADAM
    """Builds an optax transformation without its learning rate from what is traced."""
    persist_optimizer: bool = False
    proximal: bool = False
    private: bool = True
    clip: Clip = "coordinate"
    noise_generator: NoiseGenerator = "threefry"
    batch_statistics: BatchStatistics = "private"
    precision: Precision = "highest"
    """Of the network's matrix products and convolutions."""
    lanes: int = 16
    """Jobs trained side by side."""
    eval_lanes: int = 1
    """Global models evaluated side by side."""
    eval_batch: int = 500
    """About so many test samples at a time."""


@dataclasses.dataclass(frozen=True)
class Learning:
    """Everything static about what is learned and how."""

    model: Model
    task: Task
    input_shape: tuple[int, ...]
    """Of one raw sample."""
    longest: int
    """The largest number of samples that any client owns."""
    training: LocalTraining
    preprocess: Callable[[jax.Array], jax.Array] | None = None
    standardize: bool = True
    """Whether raw inputs are centred and scaled, where there is no `preprocess`."""
    server: Bound = _FEDAVG
    """Builds the optax transformation of the pseudo-gradient from what is traced."""
    conv: ConvVariant = "im2col"
    """How the package's own networks do convolutions; those of others are what they are."""
    sharded: bool = False
    """Whether each device holds an equal share of the training inputs, and not all of them."""

    @property
    def placement(self) -> Placement:
        """What of a run lies side by side on its device."""
        own = self.training
        return Placement(own.lanes, own.eval_lanes, own.eval_batch, self.conv)

    @property
    def keeps_statistics(self) -> bool:
        """Whether every client has running statistics of its own, which it never sends."""
        return self.model.has_statistics and self.training.batch_statistics == "local"

    @property
    def in_the_clear(self) -> bool:
        """Whether something that a client has learned leaves it without noise."""
        clear = self.training.batch_statistics in ("clear", "clear_layers")
        return not self.training.private or (self.model.has_statistics and clear)

    @property
    def num_parameters(self) -> int:
        """How many numbers a client sends."""
        weights = jax.eval_shape(self.model.init, jax.random.key(0))
        return sum(leaf.size for leaf in jax.tree.leaves(self.sent(weights)))

    def sent(self, weights: Weights) -> Weights:
        """What of some weights leaves a client."""
        return weights._replace(statistics={}) if self.keeps_statistics else weights

    def release(
        self, before: Weights, after: Weights, key: jax.Array, epsilon: jax.Array, sensitivity: jax.Array
    ) -> jax.Array:
        """A client's update as it leaves it, float32 [num_parameters]: clipped and noised where private.

        The key is consumed; ε and Δf as in `privacy.privatize`.
        """
        training = self.training
        noise = partial(
            privatize,
            key,
            epsilon=epsilon,
            sensitivity=sensitivity,
            clip=training.clip,
            noise_generator=training.noise_generator,
        )
        sent = self.sent(before)
        change = ravel_pytree(self.sent(after))[0] - ravel_pytree(sent)[0]
        if not training.private:
            return change
        if not self.in_the_clear:
            return noise(change)
        sizes = [leaf.size for leaf in jax.tree.leaves(sent)]
        clear = self._clear(sent)
        pieces = _cut(change, sizes)
        noised = noise(
            jnp.concatenate([piece for piece, free in zip(pieces, clear, strict=True) if not free])
        )
        held = iter(_cut(noised, [size for size, free in zip(sizes, clear, strict=True) if not free]))
        return jnp.concatenate(
            [piece if free else next(held) for piece, free in zip(pieces, clear, strict=True)]
        )

    def _clear(self, sent: Weights) -> list[bool]:
        """Which leaves of what is sent leave a client without noise."""
        paths = [path for path, _ in jax.tree_util.tree_flatten_with_path(sent)[0]]
        normed = {_layer(path) for path in paths if path[0].name == "statistics"}
        with_layers = self.training.batch_statistics == "clear_layers"
        return [path[0].name == "statistics" or (with_layers and _layer(path) in normed) for path in paths]


def _cut(values: jax.Array, sizes: list[int]) -> list[jax.Array]:
    """A vector in pieces of these sizes."""
    return jnp.split(values, list(itertools.accumulate(sizes[:-1])))


def _layer(path: tuple[Any, ...]) -> tuple[Any, ...]:
    """The layer that an array of `Weights` belongs to; linen files statistics under a collection's name."""
    layer = tuple(path[1:-1])
    return layer[1:] if layer[:1] == (jax.tree_util.DictKey("batch_stats"),) else layer


def init_weights(learning: Learning, weights: Weights, num_clients: int) -> Weights:
    """The runs' global models before round 1 from `model.init`'s, pytree [R, ...].

    Statistics that never leave their clients are [R, K, ...].
    """
    if not learning.keeps_statistics:
        return weights
    return weights._replace(
        statistics=jax.tree.map(
            lambda leaf: jnp.repeat(leaf[:, None], num_clients, axis=1), weights.statistics
        )
    )


def init_memory(learning: Learning, params: Params, rates: Rates, num_clients: int) -> Memory:
    """Makes fresh optimizer states, of every run's server and, if they persist, of its clients."""

    def fresh(part: Bound, params: Params, values: dict[str, jax.Array]) -> Any:
        return transformation(part, values | rates.tables).init(params)

    server = jax.vmap(partial(fresh, learning.server))(params, rates.server)
    runs = rates.learning_rate.shape[0]
    trained = jnp.zeros((runs, num_clients), bool) if learning.keeps_statistics else None
    if not learning.training.persist_optimizer:
        return Memory(None, server, trained)
    own = jax.vmap(partial(fresh, learning.training.optimizer))(params, rates.optimizer)
    clients = jax.tree.map(lambda leaf: jnp.repeat(leaf[:, None], num_clients, axis=1), own)
    return Memory(clients, server, trained)


def step_server(
    learning: Learning, weights: Weights, update: Weights, state: Any, rates: Rates, arrived: jax.Array
) -> tuple[Weights, Any]:
    """Computes the next global models of all runs from their mean updates, and the servers' next states.

    A round in which nobody's update arrives is no step: its model and its server's state stay as they are,
    whatever the optimizer. Momentum would move the model otherwise. Statistics take their mean change
    whatever the optimizer. Noise can make a variance negative, which has no meaning: it ends at 0.

    Args:
      learning: static.
      weights: of all runs, pytree [R, ...].
      update: mean updates, pytree [R, ...]; 0 where nobody's has arrived.
      state: the servers' states, pytree [R, ...].
      rates: traced hyper-parameters by run.
      arrived: bool [R], whether any client's update has.
    """

    def one(
        params: Params, update: Params, state: Any, values: dict[str, jax.Array], arrived: jax.Array
    ) -> Any:
        gradient = jax.tree.map(jnp.negative, update)
        server = transformation(learning.server, values | rates.tables)
        change, after = server.update(gradient, state, params)
        stepped = jax.tree.map(jnp.add, params, change), after
        return jax.tree.map(partial(jnp.where, arrived), stepped, (params, state))

    params, state = jax.vmap(one)(weights.params, update.params, state, rates.server, arrived)
    if learning.keeps_statistics or not learning.model.has_statistics:
        return weights._replace(params=params), state
    statistics = jax.tree.map(jnp.add, weights.statistics, update.statistics)
    return Weights(params, jax.tree_util.tree_map_with_path(_possible, statistics)), state


def mean_statistics(weights: Weights, share: jax.Array, trained: jax.Array | None) -> Weights:
    """Returns the models [R, ...] to be evaluated: clients' statistics are averaged over who has trained.

    Args:
      weights: of all runs.
      share: float32 [R, K], |D_k| / |D|.
      trained: as in `Memory`.
    """
    if trained is None:
        return weights
    # Nobody has trained: all statistics are the initial ones.
    weight = jnp.where(trained | ~jnp.any(trained, axis=1, keepdims=True), share, 0.0)
    weight = weight / jnp.sum(weight, axis=1, keepdims=True)
    return weights._replace(statistics=jax.tree.map(partial(_weighted_sum, weight), weights.statistics))


def _weighted_sum(weight: jax.Array, leaf: jax.Array) -> jax.Array:
    return jnp.einsum("rk,rk...->r...", weight, leaf, precision="highest")


def _possible(path: tuple[Any, ...], leaf: jax.Array) -> jax.Array:
    return jnp.maximum(leaf, 0.0) if getattr(path[-1], "key", "") == "var" else leaf
