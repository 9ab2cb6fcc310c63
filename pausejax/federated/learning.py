"""The static half of learning: what shapes the training program. A change of any of it compiles anew."""

import dataclasses
import itertools
from collections.abc import Callable
from typing import Any, Literal, NamedTuple, get_args

import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree

from pausejax import parts
from pausejax.federated import aggregators, algorithms, servers
from pausejax.federated.aggregators import Aggregator, checked_aggregator
from pausejax.federated.algorithms import Algorithm, Local, checked_algorithm
from pausejax.federated.modules import Model, Params, Weights
from pausejax.federated.optimizers import adam
from pausejax.federated.placement import ConvVariant, Placement
from pausejax.federated.precision import Precision
from pausejax.federated.tasks import Task
from pausejax.parts import Bound
from pausejax.privacy import Mechanism

BatchStatistics = Literal["private", "clear", "clear_layers", "local"]
BATCH_STATISTICS: tuple[str, ...] = get_args(BatchStatistics)

Values = dict[str, jax.Array]
"""Traced hyper-parameters and tables from files, by name."""


_ADAM = parts.bind(parts.find("optimizer", adam.__name__), {})
_FEDAVG = parts.bind(parts.find("algorithm", algorithms.fedavg.__name__), {})
_MEAN = parts.bind(parts.find("aggregator", aggregators.mean.__name__), {})
_MEAN_STEP = parts.bind(parts.find("server_optimizer", servers.fedavg.__name__), {})


class ServerState(NamedTuple):
    """What servers remember from round to round besides the global models; pytrees [R, ...]."""

    optimizer: Any
    algorithm: Any


class ClientStates(NamedTuple):
    """What clients keep from round to round, besides running statistics; pytrees [R, K, ...]."""

    optimizer: Any
    """States of the local optimizers, if they persist, else None."""
    algorithm: Any
    """The algorithm's; () if it has none."""


class Memory(NamedTuple):
    """What learning remembers from round to round besides the global models."""

    clients: ClientStates
    server: ServerState
    trained: jax.Array | None = None
    """bool [R, K], clients an upload of whom has arrived; None if they keep nothing that is evaluated."""


@dataclasses.dataclass(frozen=True)
class LocalTraining:
    """How clients train."""

    batch_size: int = 20
    local_epochs: int = 1
    max_steps: int = 100
    optimizer: Bound = _ADAM
    """Builds an optax transformation without its learning rate from what is traced."""
    persist_optimizer: bool = False
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
    server: Bound = _MEAN_STEP
    """Builds the optax transformation of the pseudo-gradient from what is traced."""
    algorithm: Bound = _FEDAVG
    aggregator: Bound = _MEAN
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
        """Whether batch norm's statistics leave a client without noise, whatever the mechanism."""
        return self.model.has_statistics and self.training.batch_statistics in ("clear", "clear_layers")

    @property
    def keeps_client_states(self) -> bool:
        """Whether the algorithm has a state of every client."""
        return bool(jax.tree.leaves(self.states[1]))

    @property
    def states(self) -> tuple[Any, Any]:
        """The algorithm's states of the server and of a client: shapes and types."""

        def init(params: Params, values: Values) -> tuple[Any, Any]:
            return self.build_algorithm(values).init(params)

        weights = jax.eval_shape(self.model.init, jax.random.key(0))
        return jax.eval_shape(init, weights.params, self._unknown_values)

    @property
    def _unknown_values(self) -> dict[str, jax.ShapeDtypeStruct]:
        return dict.fromkeys(self.algorithm.traced, jax.ShapeDtypeStruct((), jnp.float32))

    @property
    def sent(self) -> Weights:
        """What a client sends: shapes and types of the algorithm's upload and of changes of statistics."""
        weights = jax.eval_shape(self.model.init, jax.random.key(0))

        def upload(params: Params, values: Values) -> Any:
            algorithm = self.build_algorithm(values)
            server, client = algorithm.init(params)
            start, one = algorithm.start(params, server, client), jnp.int32(1)
            return algorithm.upload(Local(start, start, server, client, one, one, jnp.float32(1)))[0]

        statistics = {} if self.keeps_statistics else weights.statistics
        return Weights(jax.eval_shape(upload, weights.params, self._unknown_values), statistics)

    @property
    def num_parameters(self) -> int:
        """How many numbers a client sends."""
        return sum(leaf.size for leaf in jax.tree.leaves(self.sent))

    @property
    def traced(self) -> frozenset[str]:
        """Names of the traced values that learning on the device reads."""
        bound = (self.training.optimizer, self.server, self.algorithm, self.aggregator)
        return frozenset({"learning_rate"}.union(*(part.traced for part in bound)))

    def build_algorithm(self, values: Values) -> Algorithm:
        """Builds the algorithm of one run (or, under vmap, of each), checked when it is traced."""
        return checked_algorithm(self.algorithm.build(**values), self.algorithm.part)

    def build_aggregator(self, values: Values) -> Aggregator:
        """Builds the aggregator of one run (or, under vmap, of each), checked when it is traced."""
        return checked_aggregator(self.aggregator.build(**values), self.aggregator.part)

    def release(self, mechanism: Mechanism, upload: Weights, key: jax.Array, number: jax.Array) -> jax.Array:
        """Returns an upload as it leaves its client, float32 [num_parameters].

        Args:
          mechanism: protects all of it but the statistics that are sent in the clear.
          upload: as `sent`.
          key: consumed.
          number: int32 scalar, which release of the client it is, >= 1.
        """
        flat = ravel_pytree(upload)[0]
        if not self.in_the_clear:
            return mechanism.release(key, flat, number)
        sizes = [leaf.size for leaf in jax.tree.leaves(upload)]
        clear = self._clear(upload)
        pieces = _cut(flat, sizes)
        secret = jnp.concatenate([piece for piece, free in zip(pieces, clear, strict=True) if not free])
        released = mechanism.release(key, secret, number)
        held = iter(_cut(released, [size for size, free in zip(sizes, clear, strict=True) if not free]))
        return jnp.concatenate(
            [piece if free else next(held) for piece, free in zip(pieces, clear, strict=True)]
        )

    def _clear(self, sent: Weights) -> list[bool]:
        """Says which leaves of what is sent leave a client without noise."""
        paths = [path for path, _ in jax.tree_util.tree_flatten_with_path(sent)[0]]
        normed = {_layer(path) for path in paths if path[0].name == "statistics"}
        with_layers = self.training.batch_statistics == "clear_layers"

        def of_normed(path: tuple[Any, ...]) -> bool:
            layer = _layer(path)  # an algorithm may have put it deeper
            return any(name and layer[-len(name) :] == name for name in normed)

        return [path[0].name == "statistics" or (with_layers and of_normed(path)) for path in paths]


def _cut(values: jax.Array, sizes: list[int]) -> list[jax.Array]:
    """A vector in pieces of these sizes."""
    return jnp.split(values, list(itertools.accumulate(sizes[:-1])))


def _layer(path: tuple[Any, ...]) -> tuple[Any, ...]:
    """The layer that an array of `Weights` belongs to; linen files statistics under a collection's name."""
    layer = tuple(path[1:-1])
    return layer[1:] if layer[:1] == (jax.tree_util.DictKey("batch_stats"),) else layer
