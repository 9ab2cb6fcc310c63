"""What runs side by side changes speed only; and the benchmark counts what it says it counts."""

import ast
import importlib.util
import json
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from pausejax import measured
from pausejax.data import load
from pausejax.federated import batches, models, placement
from pausejax.federated.evaluation import evaluate
from pausejax.federated.learning import Learning, LocalTraining
from pausejax.federated.tasks import classification

NETWORKS = ("linear", "mlp", "cnn_mnist", "cnn_cifar")
BENCH = Path(__file__).resolve().parents[2] / "scripts" / "bench" / "training.py"


@pytest.fixture(scope="module")
def bench():
    spec = importlib.util.spec_from_file_location("bench_training", BENCH)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


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
            assert chosen._asdict() == row and placement.read(row) == chosen
    assert placement.choose(backend, convolutional=True, num_parameters=0).lanes >= 1


@pytest.mark.parametrize(
    "change",
    [
        {"lanes": 0},
        {"lanes": True},
        {"eval_lanes": 2.0},
        {"eval_batch": "20"},
        {"eval_batch": 2**30},
        {"conv": "winograd"},
        {"more": 1},
    ],
)
def test_what_is_no_placement_is_not_read_as_one(change):
    sound = {"lanes": 2, "eval_lanes": 1, "eval_batch": 20, "conv": "lax"}
    assert placement.read(sound) == (2, 1, 20, "lax")
    with pytest.raises(ValueError, match=next(iter(change))):
        placement.read(sound | change)


def test_networks_know_whether_they_convolve():
    found = {name: models.build(name, (32, 32, 3), 10).convolutional for name in NETWORKS}
    assert found == {"linear": False, "mlp": False, "cnn_mnist": True, "cnn_cifar": True}


def test_evaluation_does_not_depend_on_the_placement():
    source = load("digits")
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
        test = batches.held_out(source, batch)
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


@pytest.mark.slow
def test_benchmark_runs_and_its_shares_sum_up(bench, monkeypatch, capsys):
    small = ({"dataset": "digits"}, {"model": "mlp"}, (10, 3), 1.25, None)
    monkeypatch.setattr(bench, "SETTINGS", {"mlp": small})
    monkeypatch.setattr("sys.argv", ["training.py", "--runs", "2", "--rounds", "20", "--repeats", "1"])
    bench.main()
    shown = capsys.readouterr().out
    assert "times_shipped_eval_10" in shown and "training_share_of_peak_%" in shown
    shares = ast.literal_eval(shown.split("shares_% ")[1].split("}")[0] + "}")
    assert sum(shares.values()) == pytest.approx(100, abs=0.5)


@pytest.mark.parametrize(
    ("lanes", "sound"), [(1, True), (2**20, True), (0, False), (2**20 + 1, False), (True, False)]
)
def test_a_placement_that_is_read_has_counts(lanes, sound):
    values = {"lanes": lanes, "eval_lanes": 2, "eval_batch": 100, "conv": "im2col"}
    if sound:
        assert placement.read(values)._asdict() == values
    else:
        with pytest.raises(ValueError, match=r"lanes: .* is no count"):
            placement.read(values)
