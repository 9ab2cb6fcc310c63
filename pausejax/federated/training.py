"""Local training of many clients of many runs at once.

Every selected client of every run is a job. Jobs are sorted by their number of steps and cut into chunks of
`lanes` jobs. Each chunk is one vmapped training loop, which takes as many steps as its longest job. The
result of a job does not depend on the other jobs of its chunk. A run's updates are summed in an order that
depends on that run alone.
"""

from typing import Any, NamedTuple

import chex
import jax
import jax.numpy as jnp
import numpy as np

from pausejax.devices import AXIS
from pausejax.federated.algorithms import Local
from pausejax.federated.batches import TrainingData, epoch_orders, gather, num_steps
from pausejax.federated.learning import ClientStates, Learning, Memory, Values
from pausejax.federated.modules import Params, Weights
from pausejax.federated.optimizers import transformation
from pausejax.federated.sums import add_in_turn
from pausejax.parts import Bound
from pausejax.privacy import checked_mechanism

# This number is larger than that of any epoch, because other keys are folded with the numbers of epochs.
_DROPOUT = np.uint32(2**32 - 1)


class Jobs(NamedTuple):
    """J clients to train, one in each row."""

    run: jax.Array
    """int32 [J], the run.

    The client trains this run's global model; the upload is added to this run's sum.
    """
    client: jax.Array
    """int32 [J], the client; -1 marks a row without a client."""
    weight: jax.Array
    """float32 [J], aggregation weights, (2)."""
    batch_key: jax.Array
    """key [J], the key of the minibatch order."""
    noise_key: jax.Array
    """key [J], the key of the privacy noise."""
    number: jax.Array
    """int32 [J], the number i >= 1 of this release among all releases of the client."""


class TrainingResult(NamedTuple):
    """Result of one round of local training."""

    total: jax.Array
    """float32 [R, d], the weighted sum of the uploads, after the clients' privacy noise."""
    statistics: Any
    """Batch statistics that clients keep, pytree [R, K, ...]; None if clients keep none."""
    loss: jax.Array
    """float32 [J], mean minibatch training loss."""
    loss_rms: jax.Array
    """float32 [J], root mean square of the minibatch losses."""
    clients: ClientStates
    """States of the optimizer and the algorithm that clients keep, pytree [R, K, ...]."""
    updates: jax.Array
    """float32 [J, d], each client's upload, after its privacy noise; [J, 0] without `keep_updates`."""


class _Progress(NamedTuple):
    weights: Weights
    optimizer: Any
    loss: jax.Array
    squared_loss: jax.Array


class _Lane(NamedTuple):
    """One job with all arrays that its training needs."""

    weights: Weights
    """Weights from which the client starts."""
    server: Any
    """Server state of the federated algorithm."""
    client: ClientStates
    hyper: Values
    partition: jax.Array
    offset: jax.Array
    size: jax.Array
    steps: jax.Array
    batch_key: jax.Array
    noise_key: jax.Array
    number: jax.Array

    def local(self, params: Params, step: jax.Array) -> Local:
        """Returns the client after `step` steps, in the form that the federated algorithm takes."""
        steps = jnp.maximum(self.steps, 1)
        rate = self.hyper["learning_rate"]
        return Local(params, self.weights.params, self.server, self.client.algorithm, step, steps, rate)


def train(
    learning: Learning,
    mechanism: Bound,
    data: TrainingData,
    partition: jax.Array,
    weights: Weights,
    memory: Memory,
    hyper: Values,
    files: Values,
    jobs: Jobs,
    *,
    keep_updates: bool = False,
) -> TrainingResult:
    """Trains all jobs from their runs' global models and sums their uploads by run.

    Args:
      learning: the static description of learning.
      mechanism: the bound privacy mechanism, which protects the uploads.
      data: the training set.
      partition: int32 [R], the index of each run's partition.
      weights: pytree [R, ...], the global models. Their statistics are [R, K, ...] if clients keep their own.
      memory: the states of servers and clients from the last round.
      hyper: traced hyper-parameters by name, each [R].
      files: tables that all runs share, by name.
      jobs: [J], the clients to train; each client occurs at most once in a run.
      keep_updates: whether to return every single upload too.

    Raises:
      AssertionError: shapes or types of jobs, partitions or models do not fit together (when traced).
    """
    chex.assert_rank([partition, jobs.client], 1)
    chex.assert_equal_shape([jobs.run, jobs.client, jobs.weight, jobs.number])
    chex.assert_type([partition, jobs.run, jobs.client, jobs.number, jobs.weight], [int] * 4 + [float])
    chex.assert_tree_shape_prefix(weights, partition.shape)
    training = learning.training
    num_runs, num_jobs = partition.shape[0], jobs.run.shape[0]
    lanes = min(training.lanes, num_jobs)
    chunks = -(-num_jobs // lanes)
    hyper = {name: hyper[name] for name in sorted(learning.traced.union(mechanism.traced) & hyper.keys())}
    kept = weights.statistics if learning.keeps_statistics else None

    size = jnp.where(jobs.client >= 0, data.size[partition[jobs.run], jobs.client], 0)
    steps = num_steps(training, size)
    rank = jnp.argsort(-steps, stable=True)
    padded = jnp.concatenate([rank, jnp.full(chunks * lanes - num_jobs, num_jobs, rank.dtype)])

    def one_chunk(
        carry: tuple[jax.Array, ClientStates, Any], chunk: jax.Array
    ) -> tuple[tuple[jax.Array, ClientStates, Any], Any]:
        total, states, kept = carry
        # `chunk` has indices of jobs, [lanes]. The index `num_jobs` is padding.
        safe = jnp.minimum(chunk, num_jobs - 1)
        run, client = jobs.run[safe], jobs.client[safe]
        exists = (chunk < num_jobs) & (client >= 0)
        owner = jnp.maximum(client, 0)

        def of_runs(tree: Any) -> Any:
            return jax.tree.map(lambda leaf: leaf[run], tree)

        def of_clients(tree: Any) -> Any:
            return jax.tree.map(lambda leaf: leaf[run, owner], tree)

        values, server, own = of_runs(hyper), of_runs(memory.server.algorithm), of_clients(states)
        statistics = of_runs(weights.statistics) if kept is None else of_clients(kept)
        lane = _Lane(
            weights=Weights(
                jax.vmap(start_of)(of_runs(weights.params), server, own.algorithm, values), statistics
            ),
            server=server,
            client=own,
            hyper=values,
            partition=partition[run],
            offset=data.offset[partition[run], client],
            size=jnp.where(exists, size[safe], 0),
            steps=jnp.where(exists, steps[safe], 0),
            batch_key=jobs.batch_key[safe],
            noise_key=jobs.noise_key[safe],
            number=jobs.number[safe],
        )
        progress = _run_lanes(learning, data, files, lane)
        released, algorithm = jax.vmap(release)(lane, progress.weights)
        weight = jnp.where(exists, jobs.weight[safe], 0.0)
        # A pad must add nothing, even if its values are not finite.
        contribution = jnp.where(exists[:, None], released * weight[:, None], 0.0)
        total = add_in_turn(total, jnp.where(exists, run, num_runs), contribution)

        def put(old: jax.Array, new: jax.Array) -> jax.Array:
            return old.at[jnp.where(exists, run, num_runs), owner].set(new, mode="drop")

        optimizer = progress.optimizer if training.persist_optimizer else None
        states = jax.tree.map(put, states, ClientStates(optimizer, algorithm))
        kept = jax.tree.map(put, kept, progress.weights.statistics) if kept is not None else None
        taken = jnp.maximum(lane.steps, 1).astype(jnp.float32)
        loss, squared = progress.loss / taken, progress.squared_loss / taken
        return (total, states, kept), (loss, jnp.sqrt(squared), released if keep_updates else released[:, :0])

    def start_of(params: Params, server: Any, client: Any, values: Values) -> Params:
        return learning.build_algorithm(values | files).start(params, server, client)

    def release(lane: _Lane, after: Weights) -> tuple[jax.Array, Any]:
        values = lane.hyper | files
        upload, client = learning.build_algorithm(values).upload(lane.local(after.params, lane.steps))
        change: Any = {}
        if not learning.keeps_statistics:
            change = jax.tree.map(jnp.subtract, after.statistics, lane.weights.statistics)
        protect = checked_mechanism(mechanism.build(**values), mechanism.part)
        return learning.release(protect, Weights(upload, change), lane.noise_key, lane.number), client

    carry = (jnp.zeros((num_runs, learning.num_parameters), jnp.float32), memory.clients, kept)
    (total, clients, kept), outputs = jax.lax.scan(one_chunk, carry, padded.reshape(chunks, lanes))
    loss, loss_rms, updates = (
        jnp.zeros((num_jobs, *out.shape[2:]), out.dtype)
        .at[padded]
        .set(out.reshape(chunks * lanes, *out.shape[2:]), mode="drop")
        for out in outputs
    )
    return TrainingResult(total, kept, loss, loss_rms, clients, updates)


@jax.named_scope("local_steps")
def _run_lanes(learning: Learning, data: TrainingData, files: Values, lane: _Lane) -> _Progress:
    """Trains the jobs of one chunk, [lanes, ...], in parallel."""
    training = learning.training
    epochs = min(training.local_epochs, training.max_steps)

    def one_step(step: jax.Array, lane: _Lane, progress: _Progress, orders: jax.Array) -> _Progress:
        per_epoch = jnp.maximum(-(-lane.size // training.batch_size), 1)
        epoch, within = step // per_epoch, step % per_epoch
        position = within * training.batch_size + jnp.arange(training.batch_size)
        valid = position < lane.size
        # A model, a loss or a preparation may read the whole minibatch. So a short minibatch is filled with
        # samples of the same client.
        position = position % jnp.maximum(lane.size, 1)
        local = orders.at[jnp.minimum(epoch, epochs - 1), position].get(mode="clip")
        index = data.order.at[lane.partition, lane.offset + local].get(mode="clip")
        inputs, targets = gather(learning, data, index)
        count = jnp.maximum(jnp.sum(valid), 1).astype(jnp.float32)
        key = jax.random.fold_in(jax.random.fold_in(lane.batch_key, _DROPOUT), step)

        def loss_of(params: Params) -> tuple[jax.Array, Params]:
            outputs, statistics = learning.model.apply(
                params, progress.weights.statistics, inputs, key=key, training=True
            )
            losses = learning.task.loss(outputs, targets)
            return jnp.sum(jnp.where(valid, losses, 0.0)) / count, statistics

        (loss, statistics), gradient = jax.value_and_grad(loss_of, has_aux=True)(progress.weights.params)
        values = lane.hyper | files
        gradient = learning.build_algorithm(values).gradient(
            gradient, lane.local(progress.weights.params, step)
        )
        active = step < lane.steps
        optimizer = transformation(training.optimizer, values)
        change, state = optimizer.update(gradient, progress.optimizer, progress.weights.params)
        rate = lane.hyper["learning_rate"]

        def where_active(new: Any, old: Any) -> Any:
            # Select instead of multiplying by 0, because 0 times an infinite value is NaN.
            return jax.tree.map(lambda new, old: jnp.where(active, new, old), new, old)

        moved = jax.tree.map(lambda w, u: w - rate * u, progress.weights.params, change)
        after = where_active(Weights(moved, statistics), progress.weights)
        if training.persist_optimizer:
            state = where_active(state, progress.optimizer)
        loss = jnp.where(active, loss, 0.0)
        return _Progress(after, state, progress.loss + loss, progress.squared_loss + loss**2)

    def start(lane: _Lane) -> tuple[_Progress, jax.Array]:
        state = lane.client.optimizer
        if state is None:
            optimizer = transformation(training.optimizer, lane.hyper | files)
            state = optimizer.init(lane.weights.params)
        orders = epoch_orders(lane.batch_key, lane.size, learning.longest, epochs)
        return _Progress(lane.weights, state, jnp.float32(0), jnp.float32(0)), orders

    progress, orders = jax.vmap(start)(lane)
    longest = jnp.max(lane.steps)
    if learning.sharded:  # devices whose clients have finished still send rows to other devices
        longest = jax.lax.pmax(longest, AXIS)
    return jax.lax.fori_loop(
        0,
        longest,
        lambda step, p: jax.vmap(one_step, (None, 0, 0, 0))(step, lane, p, orders),
        progress,
    )
