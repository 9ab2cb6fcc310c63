"""Server optimizers, statistics and what leaves a client, against replays in NumPy and optax."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import linen, nnx
from jax.flatten_util import ravel_pytree

from pausejax import data, parts
from pausejax.federated.batches import evaluation_data
from pausejax.federated.evaluation import client_loss, evaluate
from pausejax.federated.kept import _cut
from pausejax.federated.learning import ClientStates, Memory, ServerState
from pausejax.federated.modules import Weights
from pausejax.federated.server import _mean_of_trained, evaluated_weights

from .compiled import epoch_orders, privatize

ALL = [0, 1, 2]


class Normed(linen.Module):
    outputs: int

    @linen.compact
    def __call__(self, x, training):
        x = linen.BatchNorm(use_running_average=not training, momentum=0.5)(x)
        return linen.Dense(self.outputs)(x)


class NnxNormed(nnx.Module):
    def __init__(self, inputs, outputs, rngs):
        self.norm = nnx.BatchNorm(inputs, rngs=rngs)
        self.dense = nnx.Linear(inputs, outputs, rngs=rngs)

    def __call__(self, x):
        return self.dense(self.norm(x))


class Block(nnx.Module):
    def __init__(self, width, rngs):
        self.norm = nnx.LayerNorm(width, rngs=rngs)

    def __call__(self, x):
        return self.norm(x)


class TwoNorms(nnx.Module):
    """Batch norm, and a layer norm of the same name in a block."""

    def __init__(self, inputs, outputs, rngs):
        self.norm = nnx.BatchNorm(inputs, rngs=rngs)
        self.block = Block(inputs, rngs)
        self.dense = nnx.Linear(inputs, outputs, rngs=rngs)

    def __call__(self, x):
        return self.dense(self.block(self.norm(x)))


class Dropped(linen.Module):
    outputs: int

    @linen.compact
    def __call__(self, x, training):
        return linen.Dense(self.outputs)(linen.Dropout(0.5, deterministic=not training)(x))


@pytest.fixture(scope="module")
def registry():
    with parts.collecting() as layer:

        @parts.model
        def normed(*, num_outputs: int):
            return Normed(num_outputs)

        @parts.model
        def dropped(*, num_outputs: int):
            return Dropped(num_outputs)

        @parts.model
        def nnx_normed(*, input_shape: tuple, num_outputs: int, rngs: nnx.Rngs):
            return NnxNormed(input_shape[0], num_outputs, rngs)

        @parts.model
        def two_norms(*, input_shape: tuple, num_outputs: int, rngs: nnx.Rngs):
            return TwoNorms(input_shape[0], num_outputs, rngs)

    return layer


@pytest.mark.parametrize("name", ["fedavg", "fedavgm", "fedadam", "fedyogi"])
def test_updates_of_zero_move_no_model(study, blobs, name):
    given = study(blobs, model="linear", server_optimizer=name, server_learning_rate=1.0)
    weights, memory = given.begin()
    first, state = np.asarray(ravel_pytree(weights.params)[0]), memory.server
    for _ in range(3):
        weights, state = given.step(weights, np.zeros((1, first.size), np.float32), state)
        np.testing.assert_array_equal(ravel_pytree(weights.params)[0], first)


@pytest.mark.parametrize("name", ["fedavg", "fedavgm", "fedadam", "fedyogi"])
def test_server_optimizers_are_the_textbooks(study, blobs, name):
    rate, beta1, beta2, tau = 0.3, 0.8, 0.95, 1e-2
    given = study(
        blobs,
        model="linear",
        server_optimizer=name,
        server_learning_rate=rate,
        server_momentum=beta1,
        server_second_moment=beta2,
        server_adaptivity=tau,
    )
    weights, memory = given.begin()
    state, x = memory.server, np.asarray(ravel_pytree(weights.params)[0], np.float64)
    random = np.random.default_rng(0)
    m, v = np.zeros_like(x), np.zeros_like(x)
    first = x.astype(np.float32)
    for t in range(1, 5):
        update = random.normal(size=x.size).astype(np.float32)
        weights, state = given.step(weights, update[None], state)
        d = update.astype(np.float64)
        if name == "fedavg":
            x = x + d
            if t == 1:
                np.testing.assert_array_equal(ravel_pytree(weights.params)[0], first + update)
        elif name == "fedavgm":
            m = beta1 * m + d
            x = x + rate * m
        else:
            m = beta1 * m + (1 - beta1) * d
            if name == "fedadam":
                v = beta2 * v + (1 - beta2) * d**2
            else:
                v = v - (1 - beta2) * d**2 * np.sign(v - d**2)
            x = x + rate * (m / (1 - beta1**t)) / (np.sqrt(v / (1 - beta2**t)) + tau)
        np.testing.assert_allclose(ravel_pytree(weights.params)[0], x, rtol=1e-5, atol=1e-6)
    assert all(leaf.shape[0] == 1 for leaf in jax.tree.leaves(state))
    before = jax.tree.map(np.asarray, (weights, state))
    for kept, old in zip(
        jax.tree.leaves(given.step(weights, update[None], state, anyone=False)),
        jax.tree.leaves(before),
        strict=True,
    ):
        np.testing.assert_array_equal(kept, old)


@partial(jax.jit, static_argnums=3)
@jax.grad
def gradient_of(params, normal, labels, valid):
    hidden = normal * params["BatchNorm_0"]["scale"] + params["BatchNorm_0"]["bias"]
    logits = hidden @ params["Dense_0"]["kernel"] + params["Dense_0"]["bias"]
    ce = optax.softmax_cross_entropy_with_integer_labels(logits, labels)
    return jnp.sum(ce[:valid]) / valid


def replay(given, weights, job, row, statistics):
    """One client's SGD by hand: its own batches in order; a short one is filled up for the statistics."""
    client, size = int(job.client[row]), int(given.partition.sizes[int(job.client[row])])
    longest, rate = given.learning.longest, float(given.hyper["learning_rate"][0])
    order = np.asarray(epoch_orders(job.batch_key[row], np.int32(size), longest, 1))[0, :size]
    start = given.partition.offsets[client]
    owned = given.partition.order[start : start + size][order]
    params = jax.tree.map(lambda leaf: np.asarray(leaf[0], np.float64), weights.params)
    mean, var = (np.asarray(statistics[name], np.float64) for name in ("mean", "var"))
    for at in range(0, size, 8):
        wrapped = owned[np.arange(at, at + 8) % size]
        x = given.dataset.train_inputs[wrapped].astype(np.float64)
        mean, var = 0.5 * mean + 0.5 * x.mean(0), 0.5 * var + 0.5 * x.var(0)
        normal = (x - x.mean(0)) / np.sqrt(x.var(0) + 1e-5)
        labels = given.dataset.train_targets[wrapped]
        single = jax.tree.map(np.float32, params)
        with jax.numpy_rank_promotion("allow"):
            gradient = gradient_of(single, normal.astype(np.float32), labels, min(8, size - at))
        params = jax.tree.map(lambda w, g: w - rate * np.asarray(g, np.float64), params, gradient)
    return params, {"mean": mean, "var": var}


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["private", "clear", "clear_layers", "local"])
def test_batch_statistics_go_where_they_are_told(study, blobs, registry, mode):
    given = study(blobs, registry, model="normed", batch_statistics=mode)
    learning, members = given.learning, [2, 0]
    weights, memory = given.begin()
    plain = jax.tree.map(lambda leaf: leaf[0], weights.statistics)["batch_stats"]["BatchNorm_0"]
    if mode == "local":
        assert plain["mean"].shape == (3, 5)
        plain = jax.tree.map(lambda leaf: leaf[0], plain)
    job = given.jobs(members)
    trained = given.train(weights, job)
    after, _ = given.step(weights, trained.total, memory.server)
    expected = [replay(given, weights, job, row, plain) for row in range(2)]
    share = np.asarray(job.weight, np.float64)
    for name, layer in after.params.items():
        for leaf, value in layer.items():
            mean = sum(s * params[name][leaf] for s, (params, _) in zip(share, expected, strict=True))
            np.testing.assert_allclose(value[0], mean, rtol=1e-4, atol=1e-5)
    for leaf in ("mean", "var"):
        own = [statistics[leaf] for _, statistics in expected]
        if mode == "local":
            assert after.statistics["batch_stats"]["BatchNorm_0"][leaf].shape == (1, 3, 5)
            kept = trained.statistics["batch_stats"]["BatchNorm_0"][leaf][0]
            for row, client in enumerate(members):
                np.testing.assert_allclose(kept[client], own[row], rtol=1e-4, atol=1e-5)
            np.testing.assert_array_equal(kept[1], plain[leaf])  # it did not train
        else:
            found = after.statistics["batch_stats"]["BatchNorm_0"][leaf][0]
            np.testing.assert_allclose(found, sum(s * o for s, o in zip(share, own, strict=True)), rtol=1e-4)
    assert learning.num_parameters == 10 + 5 * 3 + 3 + (0 if mode == "local" else 10)
    assert trained.updates.shape == (2, learning.num_parameters)


@pytest.mark.slow
def test_own_statistics_are_averaged_over_those_who_have_trained(study, blobs, registry):
    given = study(blobs, registry, model="normed", batch_statistics="local")
    learning, (weights, _) = given.learning, given.begin()
    own = jax.tree.map(
        lambda leaf: jnp.asarray(np.random.default_rng(0).uniform(0.5, 2, (3, *leaf.shape[1:])), jnp.float32),
        weights.statistics,
    )
    weights = jax.tree.map(lambda leaf: jnp.concatenate([leaf] * 3), weights)._replace(statistics=own)
    share = jnp.asarray([[0.2, 0.3, 0.5], [0.6, 0.3, 0.1], [0.2, 0.3, 0.5]])
    trained = jnp.asarray([[True, False, True], [False, False, False], [True, False, False]])

    @jax.jit
    def average(weights, share, trained):
        memory = Memory(ClientStates(None, ()), ServerState((), ()), trained)
        return evaluated_weights(learning, weights, memory, {}, {}, share)

    averaged = average(weights, share, trained)
    for run, by in enumerate(([2 / 7, 0, 5 / 7], [0.6, 0.3, 0.1], [1, 0, 0])):
        jax.tree.map(
            lambda a, b, run=run, by=by: np.testing.assert_allclose(
                a[run], np.tensordot(by, b[run], 1), rtol=1e-5
            ),
            averaged.statistics,
            own,
        )
    # a GPU would multiply TF32 numbers where it is not asked for float32
    program = jax.make_jaxpr(average)(weights, share, trained)
    assert "HIGHEST" in str(program)
    averaged = jax.tree.map(np.asarray, averaged)

    @jax.jit
    def loss_of(params, statistics, inputs, targets):
        return learning.task.loss(learning.model.apply(params, statistics, inputs)[0], targets).mean()

    _, losses = evaluate(learning, evaluation_data(blobs, 5), averaged)
    for run, loss in enumerate(losses):
        of_run = jax.tree.map(lambda leaf, r=run: leaf[r], averaged)
        np.testing.assert_allclose(loss, loss_of(*of_run, blobs.test_inputs, blobs.test_targets), rtol=1e-5)
    one = jax.tree.map(lambda leaf: leaf[0], weights)

    def weights_of(client):
        return Weights(one.params, jax.tree.map(lambda leaf: leaf[client], one.statistics))

    losses = client_loss(learning, given.data, jnp.int32(0), weights_of, jnp.asarray([1, 2]))
    for value, client in zip(losses, (1, 2), strict=True):
        start = given.partition.offsets[client]
        rows = given.partition.order[start : start + given.partition.sizes[client]]
        statistics = jax.tree.map(lambda leaf, k=client: leaf[k], one.statistics)
        expected = loss_of(one.params, statistics, blobs.train_inputs[rows], blobs.train_targets[rows])
        np.testing.assert_allclose(value, expected, rtol=1e-5)


@pytest.mark.parametrize("clip", ["coordinate", "vector"])
@pytest.mark.parametrize("mode", ["private", "clear", "clear_layers", "local"])
def test_what_leaves_a_client_is_noised_or_counted_as_a_leak(study, blobs, registry, mode, clip):
    options = {"model": "normed", "batch_statistics": mode, "sensitivity": 0.02, "clip": clip}
    quiet = study(blobs, registry, **options)
    noisy = study(blobs, registry, mechanism="laplace", privacy_budget=0.7, **options)
    weights, _ = quiet.begin()
    job = quiet.jobs(ALL)
    raw, sent = (np.asarray(given.train(weights, job).updates) for given in (quiet, noisy))
    norm, dense, statistics = 10, 5 * 3 + 3, 10  # scales and biases come first
    assert noisy.learning.in_the_clear == mode.startswith("clear")
    held = np.zeros(sent.shape[1], bool)
    held[norm if mode == "clear_layers" else 0 : norm + dense] = True
    held[norm + dense :] = mode == "private"
    for row in range(3):
        expected = privatize(job.noise_key[row], raw[row, held], 0.7, 0.02, clip)
        np.testing.assert_allclose(sent[row, held], expected, rtol=1e-4, atol=1e-5)
    np.testing.assert_array_equal(sent[:, ~held], raw[:, ~held])
    assert sent.shape[1] == norm + dense + (0 if mode == "local" else statistics)


@pytest.mark.parametrize(
    ("model", "clear"),
    [
        ("nnx_normed", 4 * 5),
        ("two_norms", 4 * 5),
        pytest.param("cnn_cifar", 4 * (32 + 64 + 128 + 128 + 64 + 32), marks=pytest.mark.slow),
    ],
)
def test_layers_in_the_clear_are_those_of_batch_norm(study, blobs, registry, model, clear):
    options = {"batch_statistics": "clear_layers", "mechanism": "laplace", "privacy_budget": 1.0}
    if model == "cnn_cifar":
        images = np.zeros((30, 32, 32, 3), np.uint8)
        labels = np.arange(30) % 10
        blobs = data.checked(data.Dataset(images, labels, images, labels), "images", "images")
        registry, options = None, options | {"norm": "batch"}
    given = study(blobs, registry, model=model, sensitivity=0.02, **options)
    upload = jax.tree.map(lambda leaf: jnp.ones(leaf.shape), given.learning.sent)
    mechanism = given.mechanism.build(**{name: value[0] for name, value in given.hyper.items()})
    sent = given.learning.release(mechanism, upload, jax.random.key(1), jnp.int32(1))
    assert np.sum(np.asarray(sent) == np.float32(1.0)) == clear  # what is clipped ends near 0.01


@pytest.mark.slow
def test_models_without_statistics_have_the_same_program_whatever_becomes_of_statistics(study, blobs):
    programs, released = [], []
    for mode in ("private", "clear", "clear_layers", "local"):
        given = study(blobs, batch_statistics=mode, mechanism="laplace")
        weights, _ = given.begin()
        assert weights.statistics == {} and not given.learning.in_the_clear
        job = given.jobs(ALL)
        released.append(np.asarray(given.train(weights, job).updates))
        programs.append(str(jax.make_jaxpr(lambda w, given=given: given.train(w, job))(weights)))
    assert len({len(program) for program in programs}) == 1
    for other in released[1:]:
        np.testing.assert_array_equal(released[0], other)


def test_noise_can_make_no_variance_negative(study, blobs, registry):
    given = study(blobs, registry, model="normed", mechanism="laplace", privacy_budget=0.1, sensitivity=50.0)
    weights, memory = given.begin()
    trained = given.train(weights, given.jobs(ALL))
    noised = given.unravel(trained.total).statistics["batch_stats"]["BatchNorm_0"]["var"] + 1
    assert (np.asarray(noised) < 0).any()
    after, _ = given.step(weights, trained.total, memory.server)
    found = after.statistics["batch_stats"]["BatchNorm_0"]["var"]
    np.testing.assert_allclose(found, np.maximum(noised, 0), rtol=1e-6)
    assert np.isfinite(evaluate(given.learning, evaluation_data(blobs, 5), after)[1]).all()


def test_dropout_draws_anew_in_every_step_for_every_client(study, blobs, registry):
    given = study(blobs, registry, model="dropped", learning_rate=0.0)
    weights, _ = given.begin()
    one = given.train(weights, given.jobs(ALL, round=1))
    same = given.train(weights, given.jobs(ALL, round=1))
    other = given.train(weights, given.jobs(ALL, round=2))
    np.testing.assert_array_equal(one.loss, same.loss)
    assert (np.abs(one.loss - other.loss) > 1e-4).all() and not np.asarray(one.updates).any()


@pytest.mark.parametrize(
    ("made", "message"),
    [
        (lambda: 3, "must return an optax.GradientTransformation, not int"),
        (
            lambda: optax.GradientTransformation(lambda p: None, lambda g, s, p=None: (1.0, None)),
            "updates must have the shapes of the model's parameters",
        ),
        (
            lambda: optax.GradientTransformation(lambda p: None, lambda g, s, p=None: g / 0),
            "can't be applied to the model's parameters: ",
        ),
    ],
)
def test_wrong_optimizers_are_named_with_their_file_in_one_line(study, blobs, made, message):
    with parts.collecting() as layer:

        @parts.server_optimizer
        def wrong():
            return made()

    with pytest.raises(parts.PartError) as raised:
        study(blobs, layer, server_optimizer="wrong")
    line = str(raised.value)
    assert line.startswith(f"{__file__}: server_optimizer wrong: ") and message in line and "\n" not in line


def test_the_mean_state_is_that_of_the_clients_that_have_trained():
    """The state of another client may be infinite; what has no mean is that of the largest share."""
    weight = jnp.array([[0.0, 0.25, 0.75], [0.6, 0.4, 0.0]])
    keys = jax.random.split(jax.random.key(0), 6).reshape(2, 3)
    states = {
        "best": jnp.array([[jnp.inf, 1.0, 3.0], [2.0, 4.5, jnp.nan]]),
        "head": jnp.stack([jnp.full((2, 3), jnp.nan), jnp.ones((2, 3))], axis=-1).at[:, 1].set(1.0),
        "count": jnp.array([[7, 8, 9], [1, 2, 3]]),
        "seen": jnp.array([[False, False, True], [True, False, False]]),
        "key": keys,
    }
    found = jax.tree.map(partial(_mean_of_trained, weight), states)
    np.testing.assert_allclose(found["best"], [2.5, 3.0], rtol=1e-6)
    assert found["head"].shape == (2, 2) and np.isnan(found["head"][0, 0])  # one that has trained diverged
    np.testing.assert_array_equal(found["count"], [9, 1])
    np.testing.assert_array_equal(found["seen"], [True, True])
    assert (found["key"] == jnp.stack([keys[0, 2], keys[1, 0]])).all()


def test_weights_without_axes_are_kept():
    """Such as a temperature."""
    like = [jax.ShapeDtypeStruct((), jnp.float32), jax.ShapeDtypeStruct((2,), jnp.float32)]
    for vectors in (np.arange(3.0), np.arange(6.0).reshape(2, 3)):
        scalar, pair = _cut(vectors, like)
        np.testing.assert_array_equal(scalar, vectors[..., 0])
        np.testing.assert_array_equal(pair, vectors[..., 1:])
