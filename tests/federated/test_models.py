"""Models and their layers against float64 oracles and the sizes that the paper's networks have."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import signal

from pausejax.federated import layers, models

SHAPES = {"linear": (8, 8, 1), "mlp": (28, 28, 1), "cnn_mnist": (28, 28, 1), "cnn_cifar": (32, 32, 3)}


def build(name, shape, num_classes, **options):
    """A model whose functions are compiled whole: op by op takes ten times as long."""
    model = models.build(name, shape, num_classes, **options)
    return model._replace(
        init=jax.jit(lambda key: model.init(key).params),
        apply=jax.jit(lambda params, images: model.apply(params, {}, images)[0]),
    )


def random(*shape, seed=0):
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def correlate(images, kernel):
    images, kernel = images.astype(np.float64), kernel.astype(np.float64)
    return np.stack(
        [
            np.stack(
                [
                    sum(
                        signal.correlate(image[..., c], kernel[..., c, d], "valid")
                        for c in range(image.shape[-1])
                    )
                    for d in range(kernel.shape[-1])
                ],
                axis=-1,
            )
            for image in images
        ]
    )


@pytest.mark.parametrize("variant", ["im2col", "lax", None])
@pytest.mark.parametrize(("height", "width", "size", "channels"), [(6, 7, 3, 2), (5, 5, 5, 1), (4, 9, 1, 3)])
def test_conv_is_a_valid_correlation(variant, height, width, size, channels):
    images, kernel = random(2, height, width, channels), random(size, size, channels, 4, seed=1)
    result = layers.conv(images, kernel, variant)
    np.testing.assert_allclose(result, correlate(images, kernel), atol=1e-5)


def test_a_kernel_fits_unless_it_is_larger_than_the_images_in_some_direction():
    for height, width, rows, columns in itertools.product(range(1, 4), repeat=4):
        images, kernel = np.zeros((2, height, width, 5)), np.zeros((rows, columns, 5, 4))
        if rows > height or columns > width:
            with pytest.raises(ValueError, match="the size of the convolution's kernel"):
                layers.conv(images, kernel, "im2col")
        else:
            found = jax.eval_shape(lambda i, k: layers.conv(i, k, "im2col"), images, kernel)
            assert found.shape == (2, height - rows + 1, width - columns + 1, 4)


def test_conv_variants_agree_under_vmap_with_gradient():
    images, kernels = random(3, 2, 8, 8, 3), random(3, 3, 3, 3, 5, seed=1)

    def loss(variant):
        convolve = jax.vmap(lambda x, k: layers.conv(x, k, variant))
        return lambda x, k: jnp.sum(jnp.sin(convolve(x, k)))

    ours, theirs = (jax.jit(jax.grad(loss(v), argnums=(0, 1)))(images, kernels) for v in ("im2col", "lax"))
    for a, b in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(("height", "width", "window"), [(4, 6, 2), (5, 7, 2), (7, 9, 3), (2, 2, 2)])
def test_max_pool_takes_the_maximum_of_each_window(height, width, window):
    images = random(2, height, width, 3)
    pooled = layers.max_pool(images, window)
    expected = np.array(
        [
            [
                [
                    image[row * window : (row + 1) * window, column * window : (column + 1) * window].max(
                        (0, 1)
                    )
                    for column in range(width // window)
                ]
                for row in range(height // window)
            ]
            for image in images
        ]
    )
    np.testing.assert_array_equal(pooled, expected)


@pytest.mark.parametrize(
    ("shape", "groups", "size", "offset"),
    [
        ((3, 4, 5, 8), 2, 3.0, 5.0),
        ((3, 8), 4, 3.0, 5.0),
        ((2, 3, 3, 6), 1, 3.0, 5.0),
        ((2, 2, 2, 4), 4, 3.0, 5.0),
        ((2, 2, 2, 4), 2, 3e-3, 0.0),  # whose variance is as small as what is added to it
    ],
)
def test_group_norm_is_the_two_pass_one(shape, groups, size, offset):
    values = random(*shape) * np.float32(size) + np.float32(offset)
    norm = layers.GroupNorm(groups)
    params = {"scale": random(shape[-1], seed=1), "bias": random(shape[-1], seed=2)}
    grouped = values.astype(np.float64).reshape(shape[0], -1, groups, shape[-1] // groups)
    mean, variance = grouped.mean((1, 3), keepdims=True), grouped.var((1, 3), keepdims=True)
    expected = ((grouped - mean) / np.sqrt(variance + 1e-5)).reshape(shape) * params["scale"] + params["bias"]
    np.testing.assert_allclose(
        jax.jit(norm.apply)({"params": params}, values), expected, rtol=1e-3, atol=1e-4
    )


def test_batch_norm_trains_on_the_minibatch_and_remembers_a_tenth_of_it():
    values = random(7, 3) * 2 + 1
    norm = layers.BatchNorm()
    variables = norm.init(jax.random.key(0), values, training=False)
    trained, after = norm.apply(variables, values, training=True, mutable=["batch_stats"])
    deviation = np.sqrt(values.var(0) + 1e-5)
    np.testing.assert_allclose(trained, (values - values.mean(0)) / deviation, rtol=1e-4, atol=1e-5)
    (running,) = jax.tree.map(np.asarray, after)["batch_stats"].values()
    np.testing.assert_allclose(running["mean"], 0.1 * values.mean(0), rtol=1e-5)
    np.testing.assert_allclose(running["var"], 0.9 + 0.1 * values.var(0), rtol=1e-5)
    evaluated = norm.apply({**variables, **after}, values, training=False)
    expected = (values - running["mean"]) / np.sqrt(running["var"] + 1e-5)
    np.testing.assert_allclose(evaluated, expected, rtol=1e-4, atol=1e-5)


def test_group_norm_of_constant_values_is_finite_with_its_gradient():
    norm = layers.GroupNorm(2)
    # E[x²] - E[x]² of equal values is rounding noise of either sign
    values = np.broadcast_to(np.linspace(1e3, 2e3, 64)[:, None, None, None], (64, 3, 3, 4)).astype(np.float32)
    params = norm.init(jax.random.key(0), values)
    result, gradient = jax.jit(jax.value_and_grad(lambda v: jnp.sum(norm.apply(params, v) ** 2)))(values)
    assert np.isfinite(result) and np.isfinite(gradient).all()


@pytest.mark.parametrize(
    ("name", "size"), [("linear", 650), ("mlp", 25_818), ("cnn_mnist", 29_370), ("cnn_cifar", 170_474)]
)
def test_sizes_are_those_of_the_papers_networks(name, size):
    model = build(name, SHAPES[name], 10)
    params = jax.eval_shape(model.init, jax.random.key(0))
    leaves = jax.tree.leaves(params)
    assert sum(leaf.size for leaf in leaves) == size
    assert all(leaf.dtype == jnp.float32 for leaf in leaves)


@pytest.mark.slow
@pytest.mark.parametrize("name", SHAPES)
def test_logits_depend_on_the_client_and_the_image_alone(name):
    model = build(name, SHAPES[name], 7)
    params = jax.jit(jax.vmap(model.init))(jax.random.split(jax.random.key(0), 3))
    images = random(3, 2, *SHAPES[name])
    apply = jax.jit(model.apply)
    together = jax.jit(jax.vmap(model.apply))(params, images)
    assert together.shape == (3, 2, 7)
    for client in range(3):
        own = jax.tree.map(lambda p: np.asarray(p)[client], params)
        alone = apply(own, images[client])
        np.testing.assert_allclose(together[client], alone, rtol=1e-4, atol=1e-4)
        in_other_company = model.apply(own, images[[client, (client + 1) % 3], 1])
        np.testing.assert_allclose(in_other_company[0], alone[1], rtol=1e-4, atol=1e-4)


def test_mlp_equals_float64_numpy():
    model = build("mlp", (4, 4, 1), 3)
    params = jax.tree.map(lambda p: random(*p.shape, seed=p.size), model.init(jax.random.key(2)))
    images = random(5, 4, 4, 1)
    hidden = images.reshape(5, 16).astype(np.float64)
    layers_in_order = [params[name] for name in sorted(params, key=lambda n: int(n.split("_")[1]))]
    for position, layer in enumerate(layers_in_order):
        hidden = hidden @ np.asarray(layer["kernel"], np.float64) + np.asarray(layer["bias"], np.float64)
        if position < 2:
            assert (hidden < 0).any() and (hidden > 0).any()
            hidden = np.maximum(hidden, 0)
    np.testing.assert_allclose(model.apply(params, images), hidden, rtol=1e-4, atol=1e-4)


def plain_conv(images, layer):
    kernel, size = np.asarray(layer["kernel"], np.float64), layer["kernel"].shape[0]
    windows = np.lib.stride_tricks.sliding_window_view(images, (size, size), axis=(1, 2))
    return np.einsum("nhwcij,ijcd->nhwd", windows, kernel) + np.asarray(layer["bias"], np.float64)


def plain_pool(images):
    n, height, width, channels = images.shape
    cut = images[:, : height // 2 * 2, : width // 2 * 2]
    return cut.reshape(n, height // 2, 2, width // 2, 2, channels).max(axis=(2, 4))


def plain_norm(values, layer, groups):
    grouped = values.reshape(len(values), -1, groups, values.shape[-1] // groups)
    mean, variance = grouped.mean((1, 3), keepdims=True), grouped.var((1, 3), keepdims=True)
    whole = ((grouped - mean) / np.sqrt(variance + 1e-5)).reshape(values.shape)
    return whole * np.asarray(layer["scale"], np.float64) + np.asarray(layer["bias"], np.float64)


def plain_relu(values):
    assert (values < 0).any() and (values > 0).any()
    return np.maximum(values, 0)


@pytest.mark.parametrize(
    ("name", "shape", "steps"),
    [
        (
            "cnn_mnist",
            (28, 28, 1),
            "conv relu norm4 conv relu pool norm4 conv relu pool norm4 flat dense relu dense",
        ),
        (
            "cnn_cifar",
            (32, 32, 3),
            "conv relu pool norm4 conv relu pool norm4 conv relu pool norm4 flat"
            " dense relu norm1 dense relu norm1 dense relu norm1 dense",
        ),
    ],
)
def test_convolutional_networks_equal_float64_numpy(name, shape, steps):
    """Layer by layer in the order of the paper's code; the layers' numbers say where they stand in it."""
    model = build(name, shape, 10)
    params = jax.tree.map(lambda p: 0.1 * random(*p.shape, seed=p.size), model.init(jax.random.key(2)))
    layers = iter(sorted(params, key=lambda layer: int(layer.split("_")[1])))
    images = random(2, *shape)
    values = images.astype(np.float64)
    for step in steps.split():
        if step in ("relu", "pool", "flat"):
            values = {
                "relu": plain_relu,
                "pool": plain_pool,
                "flat": lambda images: images.reshape(len(images), -1),
            }[step](values)
            continue
        layer = params[next(layers)]
        if step == "conv":
            values = plain_conv(values, layer)
        elif step == "dense":
            values = values @ np.asarray(layer["kernel"], np.float64) + np.asarray(layer["bias"], np.float64)
        else:
            values = plain_norm(values, layer, int(step[-1]))
    assert next(layers, None) is None
    np.testing.assert_allclose(model.apply(params, images), values, rtol=1e-3, atol=1e-3)


def test_initial_weights_are_uniform_within_the_inverse_root_of_the_fan_in():
    params = build("cnn_cifar", (32, 32, 3), 10).init(jax.random.key(3))
    for layer in params.values():
        if "kernel" in layer:
            bound = np.prod(layer["kernel"].shape[:-1]) ** -0.5
            for side in (layer["kernel"], -layer["kernel"]):
                assert 0.98 * bound < side.max() <= bound * (1 + 1e-6)
            # The smallest layer has 10: all below 0.6 of the bound once in 165 keys.
            assert 0.6 * bound < np.abs(layer["bias"]).max() <= bound * (1 + 1e-6)
        else:
            assert not np.any(layer["bias"]) and np.all(layer["scale"] == 1)


@pytest.mark.parametrize(
    ("name", "shape", "options", "message"),
    [
        ("cnn_cifra", (32, 32, 3), {}, r"did you mean 'cnn_cifar'\?; known: linear, mlp"),
        ("cnn_cifar", (8, 8, 1), {}, r"model cnn_cifar: can't be applied to inputs of shape \(8, 8, 1\)"),
        ("cnn_cifar", (16, 16, 1), {}, r"can't be applied to inputs of shape \(16, 16, 1\)"),
    ],
)
def test_bad_arguments_are_named(name, shape, options, message):
    with pytest.raises(ValueError, match=message):
        models.build(name, shape, 10, **options)


def test_smallest_images_that_fit():
    model = build("cnn_cifar", (22, 22, 1), 10)
    params = jax.eval_shape(model.init, jax.random.key(0))
    assert jax.eval_shape(model.apply, params, np.zeros((1, 22, 22, 1), np.float32)).shape == (1, 10)
    with pytest.raises(ValueError, match="pooling window"):
        models.build("cnn_cifar", (18, 18, 1), 10)
