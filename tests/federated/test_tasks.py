"""Losses and metrics against float64 NumPy, sample by sample."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import pausejax
from pausejax import data, parts
from pausejax.federated import tasks
from pausejax.federated.batches import evaluation_data
from pausejax.federated.evaluation import evaluate
from pausejax.federated.learning import Learning, LocalTraining
from pausejax.federated.modules import Model, Weights


def dataset(inputs, targets, **more):
    return data.checked(data.Dataset(inputs, targets, inputs, targets, **more), "made", "made")


def log_softmax(logits):
    logits = logits.astype(np.float64)
    shifted = logits - logits.max(-1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(-1, keepdims=True))


def test_classification():
    task = tasks.classification()
    assert task.output_shape(dataset(np.zeros((4, 2)), np.array([0, 3, 1, 1]))) == (4,)
    assert task.output_shape(dataset(np.zeros((4, 2)), np.array([0, 3, 1, 1]), num_classes=9)) == (9,)
    with pytest.raises(ValueError, match=r"targets must be classes of shape \[N\], not \(4, 1\)"):
        task.output_shape(dataset(np.zeros((4, 2)), np.array([[0], [3], [1], [1]])))
    logits = np.random.default_rng(0).normal(0, 30, (5, 4)).astype(np.float32)
    labels = np.array([0, 3, 1, 1, 2])
    np.testing.assert_allclose(
        jax.jit(task.loss)(logits, labels), -log_softmax(logits)[range(5), labels], rtol=1e-5, atol=1e-6
    )
    np.testing.assert_array_equal(task.metric(logits, labels), logits.argmax(1) == labels)


@pytest.mark.parametrize("shape", [(6,), (6, 1), (6, 3), (1, 2)])
def test_regression(shape):
    task = tasks.regression()
    random, count = np.random.default_rng(1), shape[0]
    targets = random.normal(size=shape).astype(np.float32)
    assert task.output_shape(dataset(np.zeros((count, 2)), targets)) == (targets[0].size,)
    outputs = random.normal(size=(count, targets[0].size)).astype(np.float32)
    expected = ((outputs.astype(np.float64) - targets.reshape(count, -1)) ** 2).mean(1)
    np.testing.assert_allclose(task.loss(outputs, targets), expected, rtol=1e-5)
    np.testing.assert_allclose(task.summary(jnp.mean(task.metric(outputs, targets))), expected.mean() ** 0.5)


@pytest.mark.parametrize(
    ("name", "targets", "expected"),
    [
        ("regression", np.ones(3), (1,)),
        ("regression", np.ones((3, 2)), (2,)),
        ("next_token", np.ones((3, 5), np.int32), (5, 2)),
    ],
)
def test_outputs_fit_targets_of_any_shape(name, targets, expected):
    part = parts.find("task", name)
    found = tasks.output_shape(part, tasks.build(part, {}), dataset(np.zeros((3, 4)), targets))
    assert found == expected


def test_only_tokens_are_counted_among_inputs():
    labels = np.array([0, 2, 1])
    assert tasks._vocabulary(dataset(np.full((3, 4), 9.0), labels)) == 3
    assert tasks._vocabulary(dataset(np.full((3, 4), 9), labels, num_classes=50)) == 50
    with pytest.raises(ValueError, match="inputs must be integers from 0 and below 5, not 9"):
        tasks._vocabulary(dataset(np.full((3, 4), 9), labels, num_classes=5))
    with pytest.raises(ValueError, match="inputs must be integers from 0, not -3"):
        tasks._vocabulary(dataset(np.full((3, 4), -3), labels))
    with pytest.raises(ValueError, match="targets must be integers from -1, not -2"):
        tasks._vocabulary(dataset(np.full((3, 4), 9), labels - 2))
    assert tasks._vocabulary(dataset(np.full((3, 4), 9), labels)) == 10


def test_next_token_ignores_what_has_no_target():
    task = tasks.next_token()
    tokens = np.array([[1, 2, 0], [3, 4, -1], [-1, -1, -1], [-1, 0, -1]])
    inputs = np.array([[0, 1, 5], [0, 0, 0], [0, 0, 0], [0, 0, 0]])
    there = (tokens >= 0).any(axis=1)
    assert task.output_shape(dataset(inputs[there], tokens[there])) == (3, 6)
    with pytest.raises(ValueError, match=r"training sequence 2 has no token \(all targets are -1\)"):
        task.output_shape(dataset(inputs, tokens))
    logits = np.random.default_rng(2).normal(size=(4, 3, 6)).astype(np.float32)
    logits[0, 0, 1] = 9.0
    logp, loss, right = log_softmax(logits), np.zeros(4), np.zeros(4)
    for row in range(4):
        there = [place for place in range(3) if tokens[row, place] >= 0]
        if there:
            loss[row] = np.mean([-logp[row, place, tokens[row, place]] for place in there])
            right[row] = np.mean([logits[row, place].argmax() == tokens[row, place] for place in there])
    np.testing.assert_allclose(jax.jit(task.loss)(logits, tokens), loss, rtol=1e-5)
    np.testing.assert_allclose(jax.jit(task.metric)(logits, tokens), right, rtol=1e-6)
    assert right[0] > 0


def test_evaluation_averages_over_samples_in_padded_batches_and_summarizes_last():
    """A model that returns its input, so that the oracle needs no network; one diverged run."""
    random = np.random.default_rng(3)
    inputs, targets = random.normal(size=(11, 2)), random.normal(size=(11, 2))
    made = dataset(inputs, targets)
    model = Model(None, lambda params, statistics, x, **_: (x * params, statistics), False, False)
    learning = Learning(model, tasks.regression(), (2,), 1, LocalTraining(), standardize=False)
    scales = jnp.asarray([1.0, -2.0, jnp.nan])
    for batch in (4, 11, 50):
        run = jax.jit(lambda test, weights: evaluate(learning, test, weights))
        metric, loss = run(evaluation_data(made, batch), Weights(scales, {}))
        for place, scale in enumerate((1.0, -2.0)):
            squares = (scale * inputs - targets) ** 2
            np.testing.assert_allclose(loss[place], squares.mean(), rtol=1e-5)
            np.testing.assert_allclose(metric[place], squares.mean() ** 0.5, rtol=1e-5)
        assert np.isnan(metric[2]) and np.isnan(loss[2])


def scalar_loss():
    return tasks.classification()._replace(loss=lambda outputs, targets: jnp.mean(outputs))


def integer_loss():
    return tasks.classification()._replace(loss=lambda outputs, targets: targets)


def no_task():
    return 3


def needs_labels():
    return tasks.classification()._replace(output_shape=lambda dataset: (dataset.train_targets[0].size + 1,))


@pytest.mark.parametrize(
    ("function", "targets", "message"),
    [
        (scalar_loss, np.array([0, 1]), "its loss must return one number for each of B samples, [B]"),
        (integer_loss, np.array([0, 1]), "its loss must be float32, not int32"),
        (no_task, np.array([0, 1]), "must return a pausejax.federated.tasks.Task, not int"),
        (needs_labels, np.array([0.5, 1]), "does not fit data set made: "),
    ],
)
def test_wrong_tasks_are_named_with_their_file_in_one_line(function, targets, message):
    part = parts.read("task", function)
    with pytest.raises(parts.PartError) as raised:
        tasks.output_shape(part, tasks.build(part, {}), dataset(np.zeros((2, 2)), targets))
    line = str(raised.value)
    assert line.startswith(f"{__file__}: task {function.__name__}: ") and message in line and "\n" not in line


def test_classes_need_integers():
    part = parts.find("task", "classification")
    task, floats = tasks.build(part, {}), dataset(np.zeros((2, 2)), np.array([0.5, 1.0]))
    with pytest.raises(parts.PartError, match="does not fit data set made: targets must"):
        tasks.output_shape(part, task, floats)


def test_tokens_are_counted_wherever_they_are():
    """The largest may be in the inputs alone, and in those of the test set alone."""
    tokens = np.zeros((3, 2), np.int32)
    for place in ("train_inputs", "train_targets", "test_inputs", "test_targets"):
        samples = dict.fromkeys(data.Dataset._fields[:4], tokens)
        samples[place] = tokens + np.array([[0], [6], [3]], np.int32)
        assert tasks._vocabulary(data.checked(data.Dataset(**samples), "made", "made")) == 7, place


@pytest.mark.slow
def test_a_task_with_one_number_for_a_sample_is_that_with_one_output(own_parts):
    """The outputs of a batch have the shape [B] or [B, 1]."""

    @parts.dataset
    def numbers():
        inputs = np.random.default_rng(0).normal(size=(40, 3)).astype(np.float32)
        targets = inputs @ np.float32([1, -2, 3])
        return data.Dataset(inputs[:30], targets[:30], inputs[30:], targets[30:])

    def errors(shape):
        def error(outputs, targets):
            return (outputs.reshape(targets.shape) - targets) ** 2

        return tasks.Task(lambda data: shape, error, error, metric_name="error", higher_is_better=False)

    @parts.task
    def scalar_error():
        return errors(())

    @parts.task
    def column_error():
        return errors((1,))

    @parts.model
    def scalar_model(*, num_outputs: int):
        assert num_outputs == 1
        return lambda key: {"w": jnp.zeros(3)}, lambda params, inputs: inputs @ params["w"]

    @parts.model
    def column_model(*, num_outputs: int):
        return lambda key: {"w": jnp.zeros(3)}, lambda params, inputs: (inputs @ params["w"])[:, None]

    common = {"rounds": 3, "num_clients": 3, "clients_per_round": 2, "dataset": "numbers", "batch_size": 5}
    column, scalar = (
        pausejax.simulate("random", task=f"{name}_error", model=f"{name}_model", **common)["error"].values
        for name in ("column", "scalar")
    )
    np.testing.assert_allclose(scalar, column, rtol=1e-6)
    assert np.all(np.diff(scalar[0]) < 0)
