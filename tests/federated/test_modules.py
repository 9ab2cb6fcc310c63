"""Models of every library become the same two functions; wrong ones are named in one line."""

import functools
from collections.abc import Callable

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen, nnx

from pausejax import parts
from pausejax.federated import models
from pausejax.federated.modules import _streams, passed_on


class LinenNorm(linen.Module):
    outputs: int
    rate: float = 0.0

    @linen.compact
    def __call__(self, x, train):
        x = linen.BatchNorm(use_running_average=not train, momentum=0.75)(x)
        x = linen.Dropout(self.rate, deterministic=not train)(x)
        return linen.Dense(self.outputs, use_bias=False)(x)


class NnxNorm(nnx.Module):
    def __init__(self, inputs, outputs, rate, rngs):
        self.norm = nnx.BatchNorm(inputs, momentum=0.75, rngs=rngs)
        self.dropout = nnx.Dropout(rate, rngs=rngs)
        self.dense = nnx.Linear(inputs, outputs, use_bias=False, rngs=rngs)

    def __call__(self, x):
        return self.dense(self.dropout(self.norm(x)))


class NnxSwitched(NnxNorm):
    """The same network, ported from linen: an argument switches its layers."""

    def __call__(self, x, train: bool = False):
        x = self.norm(x, use_running_average=not train)
        return self.dense(self.dropout(x, deterministic=not train))


def linen_norm(*, num_outputs: int, rate: str = "0"):
    return LinenNorm(num_outputs, float(rate))


def nnx_norm(*, input_shape: tuple, num_outputs: int, rngs: nnx.Rngs, rate: str = "0"):
    return NnxNorm(input_shape[0], num_outputs, float(rate), rngs)


def nnx_switched(*, input_shape: tuple, num_outputs: int, rngs: nnx.Rngs, rate: str = "0"):
    return NnxSwitched(input_shape[0], num_outputs, float(rate), rngs)


def build(function, **options):
    return models.build(parts.read("model", function), (4,), 3, **options)


def inputs(seed=0, count=6):
    return np.random.default_rng(seed).normal(2, 3, (count, 4)).astype(np.float32)


class Table(linen.Module):
    @linen.compact
    def __call__(self, x):
        return x + self.variable("constants", "positions", lambda: jnp.arange(4.0)).value[None]


class RecomputedLayers(linen.Module):
    """Three layers by a scan, each with a table of its own."""

    axis: int = 0

    @linen.compact
    def __call__(self, x):
        step = linen.remat(lambda table, x: (table(x), None))
        layers = linen.scan(
            step, variable_axes={"params": 0, "constants": self.axis}, split_rngs={"params": True}, length=3
        )
        return layers(Table(), x)[0]


class Positions(linen.Module):
    outputs: int
    table: Callable[[], linen.Module] = Table

    @linen.compact
    def __call__(self, x, train):
        x = linen.BatchNorm(use_running_average=not train)(self.table()(x))
        return linen.Dense(self.outputs)(x)


class NnxPositions(nnx.Module):
    def __init__(self, outputs, rngs):
        self.norm = nnx.BatchNorm(4, rngs=rngs)
        self.positions = nnx.Variable(jnp.arange(4.0))
        self.dense = nnx.Linear(4, outputs, rngs=rngs)

    def __call__(self, x):
        return self.dense(self.norm(x + self.positions[...][None]))


def linen_positions(*, num_outputs: int):
    return Positions(num_outputs)


def linen_positions_traced(*, num_outputs: int):
    return Positions(num_outputs, linen.jit(Table))


def linen_positions_recomputed(*, num_outputs: int):
    return Positions(num_outputs, linen.remat(Table))


def linen_positions_of_layers(*, num_outputs: int):
    return Positions(num_outputs, RecomputedLayers)


def linen_positions_side_by_side(*, num_outputs: int):
    return Positions(num_outputs, functools.partial(RecomputedLayers, 1))


def nnx_positions(*, num_outputs: int, rngs: nnx.Rngs):
    return NnxPositions(num_outputs, rngs)


@pytest.mark.parametrize(
    "function",
    [
        linen_positions,
        linen_positions_traced,
        linen_positions_recomputed,
        linen_positions_of_layers,
        linen_positions_side_by_side,
        nnx_positions,
    ],
)
def test_what_training_never_changes_is_constant(function):
    model = build(function)
    statistics = jax.jit(model.init)(jax.random.key(0)).statistics
    known = zip(jax.tree.leaves(statistics), model.constant, strict=True)
    layers = [(leaf.sum() * 4 / leaf.size, is_constant) for leaf, is_constant in known]
    assert sorted((float(total), is_constant) for total, is_constant in layers) == [
        (0.0, False),
        (4.0, False),
        (6.0, True),
    ]
    assert model.has_statistics


def test_what_a_scan_changes_is_not_passed_on():
    """Each step is under `jax.checkpoint`: JAX would take unchanged values out of the scan itself."""

    @jax.checkpoint
    def step(carry, slices):
        constant, same, changed, swapped, other = carry
        return (constant, same, changed + 1, other, swapped), (slices[0], slices[1] * 2, same)

    def scanned(constant, *given):
        def of_constant(carry, slices):
            return step((constant, *carry), slices)

        def body(carry, slices):
            (_, *carry), found = of_constant(carry, slices)
            return tuple(carry), found

        return jax.lax.scan(body, given[:4], given[4:])

    scalars, many = [jnp.ones(())] * 5, [jnp.ones(3)] * 2
    jaxpr = jax.make_jaxpr(scanned)(*scalars, *many).jaxpr
    assert passed_on(jaxpr) == [1, None, None, None, 5, None, None]


@pytest.mark.parametrize("function", [linen_norm, nnx_norm, nnx_switched])
def test_batch_norm_trains_on_the_minibatch_and_evaluates_on_running_statistics(function):
    model = build(function)
    weights = jax.jit(model.init)(jax.random.key(0))
    assert model.has_statistics and not model.convolutional
    assert len(jax.tree.leaves(weights.params)) == 3 and len(jax.tree.leaves(weights.statistics)) == 2
    kernel = next(leaf for leaf in jax.tree.leaves(weights.params) if leaf.ndim == 2)
    x = inputs().astype(np.float64)
    outputs, statistics = model.apply(*weights, inputs(), key=jax.random.key(1), training=True)
    normal = (x - x.mean(0)) / np.sqrt(x.var(0) + 1e-5)
    np.testing.assert_allclose(outputs, normal @ np.asarray(kernel, np.float64), rtol=1e-4, atol=1e-5)
    mean, var = jax.tree.leaves(statistics)
    np.testing.assert_allclose(mean, 0.25 * x.mean(0), rtol=1e-5)
    np.testing.assert_allclose(var, 0.75 + 0.25 * x.var(0), rtol=1e-5)
    evaluated, same = model.apply(weights.params, statistics, inputs(1), key=None, training=False)
    chex.assert_trees_all_equal(same, statistics)
    running = (inputs(1).astype(np.float64) - np.asarray(mean)) / np.sqrt(np.asarray(var) + 1e-5)
    np.testing.assert_allclose(evaluated, running @ np.asarray(kernel, np.float64), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("function", [linen_norm, nnx_norm, nnx_switched])
def test_dropout_follows_its_key_in_training_and_is_off_in_evaluation(function):
    model, plain = build(function, rate="0.5"), build(function)
    weights = jax.jit(model.init)(jax.random.key(0))
    apply = jax.jit(model.apply, static_argnames="training")
    one, again, other = (
        np.asarray(apply(*weights, inputs(), key=jax.random.key(seed), training=True)[0])
        for seed in (1, 1, 2)
    )
    np.testing.assert_array_equal(one, again)
    assert not np.allclose(one, other)
    # Both compiled: one operation after the other may round otherwise.
    without = jax.jit(plain.apply, static_argnames="training")
    np.testing.assert_array_equal(
        apply(*weights, inputs(), key=None, training=False)[0],
        without(*weights, inputs(), key=None, training=False)[0],
    )
    # Half of the units, doubled: the mean over many keys is the plain output.
    keys = jax.random.split(jax.random.key(3), 4000)
    many = jax.vmap(lambda key: model.apply(*weights, inputs(), key=key, training=True)[0])(keys)
    expected, _ = plain.apply(*weights, inputs(), key=None, training=True)
    error = np.abs(many.mean(0) - expected) / (many.std(0) / np.sqrt(len(keys)) + 1e-6)
    assert error.max() < 5
    assert len(np.unique(np.asarray(many[:, 0, 0]))) > 2


@pytest.mark.parametrize("function", [linen_norm, nnx_norm])
def test_seeds_start_differently_also_side_by_side(function):
    model = build(function)
    keys = jax.random.split(jax.random.key(0), 3)
    together = jax.jit(jax.vmap(model.init))(keys)
    kernels = next(leaf for leaf in jax.tree.leaves(together.params) if leaf.ndim == 3)
    assert len(np.unique(np.asarray(kernels)[:, 0, 0])) == 3
    alone = jax.jit(model.init)(keys[1])
    chex.assert_trees_all_equal(jax.tree.map(lambda leaf: leaf[1], together), alone)


def test_a_pair_of_functions_is_a_model():
    def pair(*, input_shape: tuple, num_outputs: int):
        def init(key):
            return jax.random.normal(key, (*input_shape, num_outputs))

        def apply(params, x, *, key, training):
            return x @ params + (jax.random.normal(key, (x.shape[0], 1)) if training else jnp.float32(0))

        return init, apply

    model = build(pair)
    weights = model.init(jax.random.key(0))
    assert not model.has_statistics and weights.statistics == {}
    plain, statistics = model.apply(*weights, inputs(), key=None, training=False)
    np.testing.assert_allclose(plain, inputs() @ np.asarray(weights.params), rtol=1e-5, atol=1e-5)
    noisy, _ = model.apply(*weights, inputs(), key=jax.random.key(1), training=True)
    assert statistics == {} and not np.allclose(plain, noisy)


def told(*, input_shape: tuple, num_outputs: int):
    def apply(params, x, *, training, train, deterministic):
        return jnp.tile(jnp.asarray([training, train, deterministic], jnp.float32), (x.shape[0], 1))

    return lambda key: {}, apply


class NnxTold(nnx.Module):
    def __call__(self, x, training=False, *, train, deterministic=False):
        return told(input_shape=(4,), num_outputs=3)[1](
            {}, x, training=training, train=train, deterministic=deterministic
        )


def nnx_told(*, rngs: nnx.Rngs):
    return NnxTold()


@pytest.mark.parametrize("function", [told, nnx_told])
@pytest.mark.parametrize(("mode", "words"), [(True, [1, 1, 0]), (False, [0, 0, 1])])
def test_every_word_for_training_has_its_value(function, mode, words):
    outputs, _ = build(function).apply({}, {}, inputs(), key=None, training=mode)
    np.testing.assert_array_equal(outputs, np.tile(words, (6, 1)))


@pytest.mark.parametrize("function", [linen_norm, nnx_norm, told])
def test_a_model_evaluates_unless_it_is_told_to_train(function):
    model = build(function)
    weights = model.init(jax.random.key(0))
    unsaid, _ = model.apply(*weights, inputs())
    np.testing.assert_array_equal(unsaid, model.apply(*weights, inputs(), key=None, training=False)[0])


@pytest.mark.parametrize("shape", [(2, 2), (2, 2, 2), (2, 2, 2, 2)])
def test_a_kernel_of_more_than_two_axes_convolves(shape):
    def kernel(*, num_outputs: int):
        return lambda key: jnp.zeros(shape), lambda params, x: x[:, :num_outputs]

    assert build(kernel).convolutional == (len(shape) > 2)


def test_streams_of_any_shape_begin_anew():
    like = {
        "count": jax.ShapeDtypeStruct((2,), jnp.uint32),
        "many": jax.eval_shape(lambda: jax.random.split(jax.random.key(0), (2, 3))),
        "one": jax.eval_shape(lambda: jax.random.key(0)),
    }
    found = _streams(like, jax.random.key(8))
    assert found["count"].tolist() == [0, 0] and found["count"].dtype == jnp.uint32
    assert found["many"].shape == (2, 3) and found["one"].shape == ()
    keys = jax.random.key_data(jnp.append(found["many"].ravel(), found["one"]))
    assert len(np.unique(keys, axis=0)) == 7


def test_integer_inputs_of_any_shape_and_outputs_of_any_shape():
    def embedding(*, num_outputs: int):
        return linen.Sequential([linen.Embed(7, 5), linen.Dense(num_outputs)])

    model = models.build(parts.read("model", embedding), (6,), (6, 7), dtype=jnp.int32)
    weights = jax.jit(model.init)(jax.random.key(0))
    tokens = np.arange(12, dtype=np.int32).reshape(2, 6) % 7
    assert model.apply(*weights, tokens)[0].shape == (2, 6, 7)


NOTHING = "def wrong(*, num_outputs: int): return lambda key: {}, lambda params, x"
"""A model without parameters; what it makes of x follows."""


@pytest.mark.parametrize(
    ("code", "message"),
    [
        (
            "def wrong(*, num_outputs: int): return lambda x: x",
            "must return a linen module, an nnx module or a pair",
        ),
        (
            "def wrong(*, depth: int = 2): raise RuntimeError('no depth\\nof two lines')",
            "RuntimeError: no depth",
        ),
        ("def wrong(*, num_outputs: int, colour: str): return linen.Dense(num_outputs)", "can't be built: "),
        (
            "def wrong(*, num_outputs: int): return linen.Dense(num_outputs + 1)",
            "for inputs of shape (2, 4), outputs must have the shape (2, 3), not (2, 4)",
        ),
        (f"{NOTHING}, *, training: x[:, : num_outputs - training]", "not (2, 2)"),
        (f"{NOTHING}, *, training: x[:, : num_outputs - (not training)]", "not (2, 2)"),
        (
            f"{NOTHING}: x @ jnp.ones((7, num_outputs))",
            "can't be applied to inputs of shape (4,): dot_general",
        ),
        (f"{NOTHING}: None", "for inputs of shape (2, 4), outputs must have the shape (2, 3), not NoneType"),
        (
            "def wrong(*, num_outputs: int): return NnxNorm(4, num_outputs, 0.0, nnx.Rngs(0))",
            "must take rngs, because it returns an nnx module",
        ),
        (
            "def wrong(*, num_outputs: int, rngs: nnx.Rngs): return linen.Dense(num_outputs)",
            "takes rngs, so it must return an nnx module",
        ),
        (
            "def wrong(): return lambda key: np.zeros(3, np.int32), lambda params, x: x",
            "parameters and statistics must be float32, not int32",
        ),
    ],
)
def test_wrong_models_are_named_with_their_file_in_one_line(code, message):
    names = dict(globals())
    exec(compile(code, __file__, "exec"), names)
    with pytest.raises(parts.PartError) as raised:
        build(names["wrong"])
    line = str(raised.value)
    assert line.startswith(f"{__file__}: model wrong: ") and message in line and "\n" not in line


@pytest.mark.parametrize("name", ["cnn_mnist", "cnn_cifar"])
def test_built_in_convolutions_have_group_or_batch_norm(name):
    group = models.build(name, (28, 28, 1), 10)
    batch = models.build(name, (28, 28, 1), 10, norm="batch")
    one, other = (jax.eval_shape(model.init, jax.random.key(0)) for model in (group, batch))
    assert not group.has_statistics and batch.has_statistics
    sizes = [sum(leaf.size for leaf in jax.tree.leaves(weights.params)) for weights in (one, other)]
    assert sizes[0] == sizes[1]
