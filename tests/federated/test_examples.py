"""The example files of models, tasks and data: each learns something in a few rounds."""

import importlib.util
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from pausejax import data, parts
from pausejax.federated.batches import evaluation_data
from pausejax.federated.evaluation import evaluate
from pausejax.federated.server import evaluated_weights

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


def use(name):
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    with parts.collecting() as layer:
        spec.loader.exec_module(module)
    return layer, module


@pytest.mark.slow
@pytest.mark.parametrize(
    ("file", "options", "values"),
    [
        ("nnx_dropout", {"dataset": "digits", "model": "dropout_mlp"}, {"hidden_units": 24}),
        ("batch_norm", {"dataset": "digits", "model": "batch_norm_mlp"}, {"batch_statistics": "local"}),
        ("diabetes", {"dataset": "diabetes", "model": "linear", "task": "regression"}, {}),
        (
            "characters",
            {"dataset": "characters", "model": "trigrams", "task": "next_token"},
            {"num_sequences": 300},
        ),
    ],
)
def test_examples_learn(study, file, options, values):
    layer, _ = use(file)
    options = dict(options) | values
    loaded = data.load(layer.get("dataset", options.pop("dataset")), **values)
    given = study(loaded.first(300), layer, optimizer="adam", learning_rate=0.01, batch_size=10, **options)
    test = evaluation_data(loaded, 200)
    share = jnp.asarray(given.partition.data_share)[None]
    judge = jax.jit(
        lambda weights, memory: evaluate(
            given.learning, test, evaluated_weights(given.learning, weights, memory, given.hyper, {}, share)
        )
    )
    weights, memory = given.begin()
    first = judge(weights, memory)
    for _ in range(3):
        trained = given.train(weights, given.jobs([0, 1, 2]))
        weights, _ = given.step(weights, trained.total, memory.server)
        if trained.statistics is not None:
            weights = weights._replace(statistics=trained.statistics)
    if memory.trained is not None:
        memory = memory._replace(trained=jnp.ones((1, 3), bool))
    metric, loss = judge(weights, memory)
    assert float(loss[0]) < 0.95 * float(first[1][0])
    better = np.sign(float(metric[0]) - float(first[0][0]))
    assert better == (1 if given.learning.task.higher_is_better else -1)


def test_natural_owners_are_the_people_of_the_file(tmp_path):
    _, module = use("natural_owners")
    module.make(str(tmp_path / "people.npz"))
    loaded = data.load("npz", data_file=str(tmp_path / "people.npz"))
    shares = data.partition.split(
        "natural", loaded.train_targets, module.PEOPLE, 0, batch_size=20, owner=loaded.owner
    )
    np.testing.assert_array_equal(shares.sizes, np.bincount(loaded.owner))
    assert shares.sizes.max() > 3 * shares.sizes.min() and loaded.is_images
