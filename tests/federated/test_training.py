"""Batched local training against a plain optax loop, one client at a time, and against itself rearranged."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from jax.flatten_util import ravel_pytree

from pausejax import parts
from pausejax.data import Dataset
from pausejax.data import checked as data_of
from pausejax.federated import models
from pausejax.federated.batches import (
    EvaluationData,
    TrainingData,
    evaluation_data,
    few,
    num_steps,
    scale,
)
from pausejax.federated.evaluation import client_loss, client_metric, evaluate
from pausejax.federated.learning import ClientStates, Learning, LocalTraining, Memory, ServerState
from pausejax.federated.server import init_memory
from pausejax.federated.sums import add_in_turn
from pausejax.federated.tasks import classification
from pausejax.federated.training import Jobs, train

from .compiled import epoch_orders, privatize

SHAPE = (3, 3, 1)
SIZES = np.array([[7, 24, 41], [24, 24, 24]])  # one has a minibatch of one sample
LONGEST = 41
MODEL = models.build("mlp", SHAPE, 4)
TASK = classification()


def bound(category, name, **values):
    return parts.bind(parts.find(category, name), values, ["budget_decay", "proximal_weight"])


def learning(training, algorithm="fedavg"):
    return Learning(MODEL, TASK, SHAPE, LONGEST, training, algorithm=bound("algorithm", algorithm))


@jax.jit
def logits_of(params, images):
    return MODEL.apply(params, {}, images)[0]


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(0)
    count = int(SIZES.sum(axis=1)[0])
    order = np.stack([rng.permutation(count), rng.permutation(count)])
    return TrainingData(
        jnp.asarray(rng.integers(0, 256, (count, 9)), jnp.uint8),
        jnp.asarray(rng.integers(0, 4, count), jnp.int32),
        jnp.float32(127.5),
        jnp.float32(127.5),
        jnp.asarray(order, jnp.int32),
        jnp.asarray(np.cumsum(SIZES, axis=1) - SIZES, jnp.int32),
        jnp.asarray(SIZES, jnp.int32),
    )


PARTITION = jnp.asarray([0, 1], jnp.int32)
EPSILON = 0.8
HYPER = {
    "learning_rate": jnp.asarray([0.05, 0.01]),
    "proximal_weight": jnp.asarray([0.3, 0.1]),
    "sensitivity": jnp.asarray([0.02, 0.5]),
    "momentum": jnp.asarray([0.9, 0.5]),
    "privacy_budget": jnp.full(2, EPSILON),
    "budget_decay": jnp.full(2, 50.0),  # all is spent at once: ε_1 = ε̄ in float32
}
NOTHING = Memory(ClientStates(None, ()), ServerState((), ()))


def optimizer(name):
    return bound("optimizer", name)


@functools.cache
def initial_params():
    return jax.jit(jax.vmap(MODEL.init))(jax.random.split(jax.random.key(7), 2))


def jobs(run, client):
    """Keys and budgets follow from run and client, as in a simulation; the weights sum to 1 by run."""
    return _jobs(np.asarray(run, np.int32), np.asarray(client, np.int32))


@jax.jit
def _jobs(run, client):
    def keys(stream):
        return jax.vmap(lambda r, k: jax.random.fold_in(jax.random.fold_in(jax.random.key(stream), r), k))(
            run, jnp.maximum(client, 0)
        )

    exists = client >= 0
    share = jnp.where(exists, 1.0 + jnp.maximum(client, 0).astype(jnp.float32), 0.0)
    total = jnp.zeros(2).at[run].add(share)
    return Jobs(run, client, share / total[run], keys(1), keys(2), jnp.ones(run.shape[0], jnp.int32))


@functools.partial(jax.jit, static_argnums=(0, 1))
def plain_step(name, proximal, rates, start, weights, state, images, labels):
    """One minibatch of optax's own optimizer: weights, its state, and the loss without the proximal term."""
    learner = learner_of(name, rates)

    def loss_of(w):
        plain = -jnp.mean(jax.nn.log_softmax(logits_of(w, images))[jnp.arange(len(labels)), labels])
        drift = sum(jnp.sum((a - b) ** 2) for a, b in zip(*map(jax.tree.leaves, (w, start)), strict=True))
        return plain + (rates["proximal_weight"] / 2 * drift if proximal else 0.0), plain

    gradient, plain = jax.grad(loss_of, has_aux=True)(weights)
    change, state = learner.update(gradient, state)
    return optax.apply_updates(weights, change), state, plain


@functools.cache
def plain_init(name):
    """What a state begins with does not depend on the rates."""
    return jax.jit(learner_of(name, HYPER).init)


def learner_of(name, rates):
    return {
        "adam": lambda: optax.adam(rates["learning_rate"]),
        "sgd": lambda: optax.sgd(rates["learning_rate"]),
        "momentum": lambda: optax.sgd(rates["learning_rate"], momentum=rates["momentum"]),
    }[name]()


def plain_update(training, algorithm, clip, data, params, job, row):
    """One client's released update by an ordinary Python loop over minibatches with optax."""
    run, client = int(job.run[row]), int(job.client[row])
    rates, start = jax.tree.map(lambda leaf: np.asarray(leaf)[run], (HYPER, params.params))
    size = int(data.size[run, client])
    orders = epoch_orders(job.batch_key[row], np.int32(size), LONGEST, training.local_epochs)
    orders = np.asarray(orders)[:, :size]
    owned = np.asarray(data.order[run])[int(data.offset[run, client]) :][:size]
    batches = [
        owned[order[i : i + training.batch_size]]
        for order in orders
        for i in range(0, size, training.batch_size)
    ][: training.max_steps]
    step = functools.partial(plain_step, training.optimizer.name, algorithm == "fedprox", rates, start)
    state = plain_init(training.optimizer.name)(start)
    weights, losses = start, []
    for batch in batches:
        images = ((np.asarray(data.inputs)[batch] - 127.5) / 127.5).reshape(-1, *SHAPE).astype(np.float32)
        with jax.numpy_dtype_promotion("standard"):  # optax's Adam needs it
            weights, state, plain = step(weights, state, images, np.asarray(data.targets)[batch])
        losses.append(float(plain))
    update = ravel_pytree(weights)[0] - ravel_pytree(start)[0]
    if clip:
        update = privatize(job.noise_key[row], update, EPSILON, rates["sensitivity"], clip)
    return np.asarray(update), np.mean(losses), np.sqrt(np.mean(np.square(losses)))


@functools.partial(jax.jit, static_argnums=(0, 1, 2, 7))
def jitted_train(training, algorithm, clip, data, job, params, memory, keep_updates):
    mechanism = bound("mechanism", "laplace", clip=clip) if clip else bound("mechanism", "none")
    made = learning(training, algorithm)
    return train(made, mechanism, data, PARTITION, params, memory, HYPER, {}, job, keep_updates=keep_updates)


def run_train(
    training, data, job, params=None, memory=NOTHING, keep_updates=False, algorithm="fedavg", clip=""
):
    params = initial_params() if params is None else params
    return jitted_train(training, algorithm, clip, data, job, params, memory, keep_updates)


@pytest.mark.parametrize(
    "options",
    [
        {"clip": "coordinate"},
        {"optimizer": optimizer("sgd")},
        {"optimizer": optimizer("momentum"), "local_epochs": 3},
        {"local_epochs": 2, "max_steps": 3},
        {"algorithm": "fedprox"},
        {"clip": "vector"},
        pytest.param({"batch_size": 64, "clip": "coordinate"}, marks=pytest.mark.slow),
    ],
)
def test_training_equals_a_plain_optax_loop(data, options):
    # Five jobs, one of nobody, in two chunks of three: one place stays empty.
    algorithm, clip = (options.pop(name, other) for name, other in (("algorithm", "fedavg"), ("clip", "")))
    training = LocalTraining(batch_size=options.pop("batch_size", 10), lanes=3, **options)
    job = jobs([0, 0, 1, 1, 0], [0, 2, 2, 0, -1])
    trained = run_train(training, data, job, keep_updates=True, algorithm=algorithm, clip=clip)
    assert trained.loss[4] == trained.loss_rms[4] == 0
    total = np.zeros((2, trained.updates.shape[1]))
    for row in range(4):
        update, loss, rms = plain_update(training, algorithm, clip, data, initial_params(), job, row)
        scale = np.abs(update).max()
        np.testing.assert_allclose(trained.updates[row], update, atol=2e-5 * scale, rtol=2e-4)
        np.testing.assert_allclose(trained.loss[row], loss, rtol=1e-4)
        np.testing.assert_allclose(trained.loss_rms[row], rms, rtol=1e-4)
        total[int(job.run[row])] += float(job.weight[row]) * np.asarray(trained.updates[row], np.float64)
    np.testing.assert_allclose(trained.total, total, atol=1e-6 * np.abs(total).max(), rtol=1e-5)


@pytest.mark.slow
def test_dummy_clients_batching_and_company_change_nothing(data):
    training = LocalTraining(batch_size=10, lanes=2)
    alone = run_train(training, data, jobs([0, 0], [2, 0]), keep_updates=True)
    crowd = run_train(
        training, data, jobs([0, 0, 0, 1, 1, 1, 0], [2, -1, 0, 1, 2, -1, -1]), keep_updates=True
    )
    np.testing.assert_array_equal(alone.updates[0], crowd.updates[0])
    np.testing.assert_array_equal(alone.updates[1], crowd.updates[2])
    np.testing.assert_array_equal(alone.total[0], crowd.total[0])
    wide = run_train(dataclasses.replace(training, lanes=7), data, jobs([0, 0], [2, 0]), keep_updates=True)
    np.testing.assert_allclose(alone.updates, wide.updates, rtol=1e-4, atol=1e-5)


def test_a_diverged_run_leaves_its_neighbours_alone(data):
    training = LocalTraining(batch_size=10, lanes=4)
    job = jobs([0, 0, 1, 1], [0, 1, 0, 1])
    broken = jax.jit(functools.partial(jax.tree.map, lambda leaf: leaf.at[0].set(jnp.nan)))(initial_params())
    good, bad = run_train(training, data, job), run_train(training, data, job, params=broken)
    assert np.isnan(bad.total[0]).any()
    np.testing.assert_array_equal(good.total[1], bad.total[1])


def test_a_batch_of_a_client_holds_samples_of_this_client_only(data):
    """The targets of client k are k, and the loss reads the largest and the smallest of the batch."""
    owner = np.repeat(np.arange(3), SIZES[0]).astype(np.int32)
    targets = np.empty_like(owner)
    targets[np.asarray(data.order[0])] = owner
    data = data._replace(targets=jnp.asarray(targets))

    def extremes(outputs, targets):
        found = 10 * jnp.max(targets) + jnp.min(targets)
        return jnp.full(outputs.shape[0], found.astype(jnp.float32))

    task = TASK._replace(loss=extremes, metric=extremes)
    made = dataclasses.replace(learning(LocalTraining(batch_size=10)), task=task)
    weights = jax.tree.map(lambda leaf: leaf[0], initial_params())

    def training_loss(data, job, params):
        mechanism = bound("mechanism", "none")
        return train(made, mechanism, data, PARTITION, params, NOTHING, HYPER, {}, job).loss

    loss = jax.jit(training_loss)(data, jobs([0, 0, 0], [0, 1, 2]), initial_params())
    np.testing.assert_array_equal(loss, [0, 11, 22])
    own = client_loss(made, data, jnp.int32(0), lambda _: weights, jnp.arange(3))
    np.testing.assert_array_equal(own, [0, 11, 22])
    nothing = jax.tree.map(lambda leaf: leaf[0], NOTHING)
    metric = client_metric(made, LONGEST, data, weights, nothing, {}, {})
    np.testing.assert_array_equal(metric, [0, 11, 22])
    undefined = dataclasses.replace(made, task=task._replace(summary=lambda mean: jnp.log(mean - 1)))
    metric = client_metric(undefined, LONGEST, data, weights, nothing, {}, {})
    assert metric[0] == (-np.inf if TASK.higher_is_better else np.inf) and np.isfinite(metric[1:]).all()


@pytest.mark.slow
def test_a_finished_client_does_not_meet_its_neighbours_infinities(data):
    """Client 0 of run 0 has one step; with a huge rate its gradient overflows in the steps after it."""
    training = LocalTraining(batch_size=10, optimizer=optimizer("sgd"), lanes=2)
    huge = {**HYPER, "learning_rate": jnp.asarray([1e15, 1e15])}

    def update_of(job):
        return jax.jit(
            lambda job: (
                train(
                    learning(training),
                    bound("mechanism", "none"),
                    data,
                    PARTITION,
                    initial_params(),
                    NOTHING,
                    huge,
                    {},
                    job,
                    keep_updates=True,
                ).updates
            )
        )(job)

    alone, beside = update_of(jobs([0], [0])), update_of(jobs([0, 0], [0, 2]))
    assert np.isfinite(alone).all() and not np.isfinite(beside[1]).all()
    np.testing.assert_allclose(beside[0], alone[0], rtol=1e-5, atol=1e-6 * np.abs(alone[0]).max())


@pytest.mark.slow
def test_persistent_optimizer_states_belong_to_their_clients(data):
    training = LocalTraining(batch_size=10, persist_optimizer=True, lanes=2)
    params = initial_params().params
    memory = jax.jit(lambda: init_memory(learning(training), params, HYPER, {}, 3))()
    trained = run_train(training, data, jobs([0, 1, 0], [2, 1, -1]), memory=memory)
    assert trained.updates.shape == (3, 0)
    steps = np.asarray(trained.clients.optimizer.count)
    np.testing.assert_array_equal(steps, [[0, 0, 5], [0, 3, 0]])
    again = run_train(
        training, data, jobs([0, 1, 0], [2, 1, -1]), memory=memory._replace(clients=trained.clients)
    )
    np.testing.assert_array_equal(np.asarray(again.clients.optimizer.count), 2 * steps)
    fresh = run_train(dataclasses.replace(training, persist_optimizer=False), data, jobs([0, 1], [2, 1]))
    np.testing.assert_allclose(trained.total, fresh.total, rtol=1e-5, atol=1e-7)
    assert not np.allclose(again.total, fresh.total, rtol=1e-3)


@pytest.mark.parametrize("size", [1, 5, 20])
def test_epoch_orders_are_permutations_that_do_not_depend_on_the_longest_client(size):
    key = jax.random.key(3)
    orders = np.asarray(epoch_orders(key, np.int32(size), 20, 3))[:, :size]
    np.testing.assert_array_equal(np.sort(orders, axis=1), np.tile(np.arange(size), (3, 1)))
    longer = np.asarray(epoch_orders(key, np.int32(size), 57, 3))[:, :size]
    np.testing.assert_array_equal(orders, longer)
    if size == 20:
        assert not np.array_equal(orders[0], orders[1])


@pytest.mark.parametrize("count", [1, 2, 3, 9])
def test_rows_of_a_run_are_added_in_their_order_and_no_others_are(count):
    rng = np.random.default_rng(count)
    rows = (rng.normal(size=(count, 5)) * 10.0 ** rng.integers(-6, 7, (count, 1))).astype(np.float32)
    run = rng.integers(0, 4, count) if count > 2 else np.zeros(count, int)  # 3: nobody's
    rows[run == 3] = np.nan
    total = rng.normal(size=(3, 5)).astype(np.float32)
    expected = total.copy()
    for to, row in zip(run, rows, strict=True):
        if to < 3:
            expected[to] += row
    summed = jax.jit(add_in_turn)(total, jnp.asarray(run), rows)
    np.testing.assert_array_equal(summed, expected)


def test_the_first_samples_of_a_test_set_are_cut_anew():
    """Batches as equal as can be; the first samples fill the last one and do not count."""
    rng = np.random.default_rng(2)
    images, labels = rng.integers(0, 256, (11, 3, 2, 1)), rng.integers(0, 4, 11)
    made = data_of(Dataset(images, labels, images, labels), "made", "made")
    whole = evaluation_data(made, 4)
    assert whole.inputs.shape == (3, 4, 6) and whole.targets.shape == whole.exists.shape == (3, 4)
    for test, count, shape in (
        (whole, 11, (3, 4)),
        (few(whole, 7, 3), 7, (3, 3)),
        (few(whole, 99, 99), 11, (1, 11)),
    ):
        there = np.asarray(test.exists)
        assert there.shape == shape and there.ravel()[:count].all() and there.sum() == count
        np.testing.assert_array_equal(np.asarray(test.inputs)[there], images.reshape(11, 6)[:count])
        np.testing.assert_array_equal(np.asarray(test.targets)[there], labels[:count])
        filled = np.resize(images[:count].reshape(count, 6), (there.size, 6)).reshape(test.inputs.shape)
        np.testing.assert_array_equal(test.inputs, filled)
        assert (test.mean, test.std) == scale(made)


def test_number_of_steps():
    training = LocalTraining(batch_size=20, local_epochs=2, max_steps=9)
    np.testing.assert_array_equal(
        num_steps(training, jnp.asarray([0, 1, 20, 21, 81, 1000])), [0, 2, 2, 4, 9, 9]
    )


@pytest.mark.parametrize("local_epochs", [10, 10**9, 2**31 - 1])
@pytest.mark.parametrize("max_steps", [9, 10**9, 2**31 - 1])
def test_steps_of_many_epochs_stay_within_their_limit(local_epochs, max_steps):
    training = LocalTraining(batch_size=20, local_epochs=local_epochs, max_steps=max_steps)
    sizes = [0, 20, 81, 1000, 10**9]
    expected = [min(-(-size // 20) * local_epochs, max_steps) for size in sizes]
    assert num_steps(training, jnp.asarray(sizes)).tolist() == expected


def test_unknown_optimizer_is_named():
    with pytest.raises(ValueError, match="optimizer: there is no 'lion'; known: adam, sgd, momentum"):
        optimizer("lion")


@pytest.mark.slow
def test_evaluation_equals_numpy_and_ignores_padding(data):
    rng = np.random.default_rng(1)
    images, labels = rng.integers(0, 256, (11, 9)), rng.integers(0, 4, 11)
    padded = np.append(labels, -1).reshape(2, 6)
    held_out = EvaluationData(
        jnp.asarray(np.append(images, np.zeros((1, 9)), axis=0).reshape(2, 6, 9), jnp.uint8),
        jnp.asarray(np.maximum(padded, 0), jnp.int32),
        jnp.asarray(padded >= 0),
        data.mean,
        data.std,
    )
    params = initial_params()
    for lanes in (1, 2):
        accuracy, loss = evaluate(learning(LocalTraining(eval_lanes=lanes)), held_out, params)
        for run in range(2):
            pixels = ((images - 127.5) / 127.5).reshape(-1, *SHAPE).astype(np.float32)
            logits = np.asarray(
                logits_of(jax.tree.map(lambda leaf, r=run: leaf[r], params.params), pixels), np.float64
            )
            log_p = logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))
            assert float(accuracy[run]) == pytest.approx((logits.argmax(axis=1) == labels).mean())
            assert float(loss[run]) == pytest.approx(-log_p[np.arange(11), labels].mean(), rel=1e-5)
    broken = jax.tree.map(lambda leaf: leaf.at[0].set(jnp.nan), params)
    accuracy, _ = evaluate(learning(LocalTraining()), held_out, broken)
    assert np.isnan(accuracy[0]) and np.isfinite(accuracy[1])


def test_client_loss_averages_a_clients_own_samples(data):
    params = jax.tree.map(lambda leaf: leaf[0], initial_params())
    losses = client_loss(learning(LocalTraining()), data, jnp.int32(0), lambda _: params, jnp.asarray([2, 0]))
    for value, client in zip(losses, (2, 0), strict=True):
        owned = np.asarray(data.order[0])[int(data.offset[0, client]) :][: int(data.size[0, client])]
        images = ((np.asarray(data.inputs)[owned] - 127.5) / 127.5).reshape(-1, *SHAPE).astype(np.float32)
        log_p = jax.nn.log_softmax(logits_of(params.params, images))
        expected = -np.asarray(log_p)[np.arange(len(owned)), np.asarray(data.targets)[owned]].mean()
        assert float(value) == pytest.approx(float(expected), rel=1e-5)
