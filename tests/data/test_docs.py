"""The parts that docs/data.md shows how to write do what it says."""

import re
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from pausejax import data, parts
from pausejax.federated import models, tasks

PAGE = Path(__file__).resolve().parents[2] / "docs" / "data.md"


@pytest.fixture(scope="module")
def shown():
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    with parts.collecting() as layer:
        for place, block in enumerate(block for block in blocks if "@pausejax." in block):
            # As a file of its own would be: annotations are looked up in the globals.
            exec(compile(block, f"{PAGE}:{place}", "exec"), {"__name__": f"shown_{place}"})
    return layer


def test_data_set(shown):
    loaded = data.load(shown.get("dataset", "two_moons"), samples=50)
    assert loaded.input_shape == (2,) and len(loaded.train_inputs) == 40 and loaded.classes == 2


def test_partition(shown):
    part = shown.get("partition", "one_big")
    shares = data.partition.split(part, np.zeros(900), 3, 0, big_share=0.7)
    assert shares.sizes[0] > 600 and part.parameters["big_share"].default == 0.5


def test_model(shown):
    model = models.build(shown.get("model", "wide_mlp"), (8, 8, 1), 10, hidden_units=5)
    params = jax.eval_shape(model.init, jax.random.key(0)).params
    assert sum(leaf.size for leaf in jax.tree.leaves(params)) == 65 * 5 + 6 * 10


def test_task(shown):
    part = shown.get("task", "robust_regression")
    task = tasks.build(part, {})
    np.testing.assert_array_equal(task.loss(jnp.asarray([[1.0], [3.0]]), jnp.asarray([2.0, 0.5])), [1.0, 2.5])
    assert task.metric_name == "test_mae" and not task.higher_is_better
