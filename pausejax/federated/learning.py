"""Defines the static description of learning. A change of a value in it compiles the program anew."""

import dataclasses
import functools
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
    """States of the servers between two rounds, without the global models; pytrees [R, ...]."""

    optimizer: Any
    algorithm: Any


class ClientStates(NamedTuple):
    """States of the clients between two rounds, without running statistics; pytrees [R, K, ...]."""

    optimizer: Any
    """States of the local optimizers; None if they are not kept between rounds."""
    algorithm: Any
    """Client states of the federated algorithm; () if the algorithm has no client states."""


class Memory(NamedTuple):
    """State of learning between two rounds, without the global models."""

    clients: ClientStates
    server: ServerState
    trained: jax.Array | None = None
    """bool [R, K], clients that have trained; None if clients keep no state that an evaluation uses."""


@dataclasses.dataclass(frozen=True)
class LocalTraining:
    """Static settings of local training and evaluation."""

    batch_size: int = 20
    local_epochs: int = 1
    max_steps: int = 100
    optimizer: Bound = _ADAM
    """Part that builds the optax transformation of local steps, without the learning rate, from the traced
    values."""
    persist_optimizer: bool = False
    batch_statistics: BatchStatistics = "private"
    precision: Precision = "highest"
    """Precision of the network's matrix products and convolutions."""
    lanes: int = 16
    """Number of clients that are trained in parallel."""
    eval_lanes: int = 1
    """Number of global models that are evaluated in parallel."""
    eval_batch: int = 500
    """Approximate number of test samples in an evaluation batch."""


@dataclasses.dataclass(frozen=True)
class Learning:
    """Static description of the model, the task, and how the model is trained."""

    model: Model
    task: Task
    input_shape: tuple[int, ...]
    """Shape of one raw sample."""
    longest: int
    """Largest number of samples that any client owns."""
    training: LocalTraining
    preprocess: Callable[[jax.Array], jax.Array] | None = None
    standardize: bool = True
    """Whether raw inputs are centred and scaled if there is no `preprocess`."""
    server: Bound = _MEAN_STEP
    """Part that builds the optax transformation of the pseudo-gradient from the traced values."""
    algorithm: Bound = _FEDAVG
    aggregator: Bound = _MEAN
    tables: tuple[tuple[str, tuple[int, ...]], ...] = ()
    """Shapes of the tables that the algorithm and the aggregator read from files, by parameter name."""
    conv: ConvVariant = "im2col"
    """Implementation of convolutions in the package's own networks; other networks are not changed."""
    sharded: bool = False
    """Whether each device holds an equal share of the training inputs, and not all of them."""

    @property
    def placement(self) -> Placement:
        """How many clients, models and test samples a device computes in parallel, and how convolutions."""
        own = self.training
        return Placement(own.lanes, own.eval_lanes, own.eval_batch, self.conv)

    @property
    def keeps_statistics(self) -> bool:
        """Whether every client keeps its own running statistics and never sends them."""
        return self.model.has_statistics and self.training.batch_statistics == "local"

    @property
    def in_the_clear(self) -> bool:
        """Whether clients send batch norm's statistics without noise, whatever the privacy mechanism is."""
        return self.model.has_statistics and self.training.batch_statistics in ("clear", "clear_layers")

    @property
    def keeps_client_states(self) -> bool:
        """Whether the federated algorithm keeps a state for every client."""
        return bool(jax.tree.leaves(self.states[1]))

    @functools.cached_property
    def states(self) -> tuple[Any, Any]:
        """Shapes and types of the algorithm's server state and of its state of one client."""

        def init(params: Params, values: Values) -> tuple[Any, Any]:
            return self.build_algorithm(values).init(params)

        weights = jax.eval_shape(self.model.init, jax.random.key(0))
        return jax.eval_shape(init, weights.params, self.shapes_of(self.algorithm))

    def shapes_of(self, part: Bound) -> dict[str, jax.ShapeDtypeStruct]:
        """Returns the shapes of the traced values and tables that the algorithm or the aggregator reads."""
        tables = dict(self.tables)
        return {name: jax.ShapeDtypeStruct(tables.get(name, ()), jnp.float32) for name in part.traced}

    @functools.cached_property
    def sent(self) -> Weights:
        """Shapes and types of the arrays that a client sends: the upload and the changes of statistics."""
        weights = jax.eval_shape(self.model.init, jax.random.key(0))

        def upload(params: Params, values: Values) -> Any:
            algorithm = self.build_algorithm(values)
            server, client = algorithm.init(params)
            start, one = algorithm.start(params, server, client), jnp.int32(1)
            return algorithm.upload(Local(start, start, server, client, one, one, jnp.float32(1)))[0]

        statistics = {} if self.keeps_statistics else weights.statistics
        params = jax.eval_shape(upload, weights.params, self.shapes_of(self.algorithm))
        return Weights(params, statistics)

    @functools.cached_property
    def num_parameters(self) -> int:
        """Count of the float32 numbers that a client sends in a round."""
        return sum(leaf.size for leaf in jax.tree.leaves(self.sent))

    @property
    def traced(self) -> frozenset[str]:
        """Names of the traced values that learning on the device reads."""
        bound = (self.training.optimizer, self.server, self.algorithm, self.aggregator)
        return frozenset({"learning_rate"}.union(*(part.traced for part in bound)))

    def build_algorithm(self, values: Values) -> Algorithm:
        """Builds the federated algorithm of one run from its traced values. Tracing checks its results."""
        return checked_algorithm(self.algorithm.build(**values), self.algorithm.part)

    def build_aggregator(self, values: Values) -> Aggregator:
        """Builds the aggregator of one run from its traced values. Tracing checks its result."""
        return checked_aggregator(self.aggregator.build(**values), self.aggregator.part)

    def release(self, mechanism: Mechanism, upload: Weights, key: jax.Array, number: jax.Array) -> jax.Array:
        """Applies the privacy mechanism to an upload, and returns the vector, float32 [num_parameters].

        Args:
          mechanism: the privacy mechanism. Arrays that are sent in the clear do not pass through the
            mechanism.
          upload: the upload, with the structure of `sent`.
          key: the key of the noise, consumed.
          number: int32 scalar >= 1, the number of this release among all releases of the client.
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
        """Returns, for each leaf of `sent`, whether it is sent without noise."""
        paths = [path for path, _ in jax.tree_util.tree_flatten_with_path(sent)[0]]
        normed = {_layer(path) for path in paths if path[0].name == "statistics"}
        with_layers = self.training.batch_statistics == "clear_layers"
        weights = jax.eval_shape(self.model.init, jax.random.key(0))
        known = {_layer(path) for path, _ in jax.tree_util.tree_flatten_with_path(weights)[0]}

        def of_normed(path: tuple[Any, ...]) -> bool:
            # An algorithm may nest the weights in its upload, so the path of a layer is the end of a path.
            ends = (_layer(path)[start:] for start in range(len(path)))
            return next((end for end in ends if end in known and end), None) in normed

        return [path[0].name == "statistics" or (with_layers and of_normed(path)) for path in paths]


def _cut(values: jax.Array, sizes: list[int]) -> list[jax.Array]:
    """Cuts a vector into pieces of the given sizes."""
    return jnp.split(values, list(itertools.accumulate(sizes[:-1])))


def _layer(path: tuple[Any, ...]) -> tuple[Any, ...]:
    """Returns the path of the layer of an array in `Weights`, without linen's "batch_stats" level."""
    layer = tuple(path[1:-1])
    return layer[1:] if layer[:1] == (jax.tree_util.DictKey("batch_stats"),) else layer
