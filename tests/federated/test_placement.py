"""What runs side by side changes speed only; and the benchmark counts what it says it counts."""

import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from pausejax import data, measured
from pausejax.federated import batches, models, placement
from pausejax.federated.evaluation import evaluate
from pausejax.federated.learning import Learning, LocalTraining
from pausejax.federated.tasks import classification

from ..programs import load

NETWORKS = ("linear", "mlp", "cnn_mnist", "cnn_cifar")


@pytest.fixture(scope="module")
def bench():
    return load("scripts/bench/training.py")


@pytest.mark.parametrize("backend", ["cpu", "gpu", "tpu"])
def test_a_network_that_nobody_has_measured_lies_as_the_measured_one_most_like_it(backend):
    table = json.loads(measured.FILE.read_text())
    rows = table.get(backend, table["elsewhere"])["programs"]
    assert {row["convolutional"] for row in rows} == {False, True}
    for row in rows:
        kind = {"convolutional": row.pop("convolutional")}
        size = row.pop("parameters")
        others = [other["parameters"] for other in rows if other.get("convolutional", not kind) == kind]
        assert size not in others, "two rows for one network"
        for near in (size, int(size * 1.01)):
            chosen = placement.choose(backend, **kind, num_parameters=near)
            assert chosen._asdict() == row
    assert placement.choose(backend, convolutional=True, num_parameters=0).lanes >= 1


def test_networks_know_whether_they_convolve():
    found = {name: models.build(name, (32, 32, 3), 10).convolutional for name in NETWORKS}
    assert found == {"linear": False, "mlp": False, "cnn_mnist": True, "cnn_cifar": True}


@pytest.mark.slow
def test_evaluation_does_not_depend_on_the_placement():
    source = data.load("digits")
    model = models.build("mlp", source.input_shape, 10)
    params = jax.jit(jax.vmap(model.init))(jax.random.split(jax.random.key(0), 3))
    # Float64, by hand: the mean over 360 images, none of them counted twice.
    pixels = (source.test_inputs.reshape(360, -1) - source.mean) / source.std
    apply = jax.jit(jax.vmap(lambda params, images: model.apply(*params, images)[0], (0, None)))
    logits = np.asarray(apply(params, pixels.reshape(360, 8, 8, 1)), np.float64)
    accuracy = (logits.argmax(axis=2) == source.test_targets).mean(axis=1)
    log_sum = np.log(np.exp(logits - logits.max(axis=2, keepdims=True)).sum(axis=2)) + logits.max(axis=2)
    loss = (log_sum - logits[:, np.arange(360), source.test_targets]).mean(axis=1)
    for batch, lanes in ((360, 1), (500, 2), (7, 1), (100, 3)):
        test = batches.evaluation_data(source, batch)
        assert test.exists.shape[1] <= batch and np.asarray(test.exists).sum() == 360
        learning = Learning(model, classification(), (8, 8, 1), 1, LocalTraining(eval_lanes=lanes))
        run = jax.jit(lambda p, t, learning=learning: evaluate(learning, t, p))
        ours_accuracy, ours_loss = run(params, jax.tree.map(jnp.asarray, test))
        np.testing.assert_allclose(ours_accuracy, accuracy, atol=1e-6)
        np.testing.assert_allclose(ours_loss, loss, rtol=1e-5)


@pytest.mark.parametrize("variant", ["im2col", "lax"])
@pytest.mark.slow
def test_benchmark_counts_the_flops_of_matrix_products(bench, variant):
    mlp = models.build("mlp", (28, 28, 1), 10)
    expected = 2 * (784 * 32 + 32 * 16 + 16 * 10)
    assert bench.matrix_flops(mlp, mlp.init(jax.random.key(0)), (28, 28, 1)) == expected
    cnn = models.build("cnn_cifar", (32, 32, 3), 10, conv_variant=variant)
    convolutions = 30**2 * 27 * 32 + 13**2 * 9 * 32 * 64 + 4**2 * 9 * 64 * 128
    dense = 512 * 128 + 128 * 64 + 64 * 32 + 32 * 10
    counted = bench.matrix_flops(cnn, cnn.init(jax.random.key(0)), (32, 32, 3))
    assert counted == 2 * (convolutions + dense)
