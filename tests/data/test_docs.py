"""The data, partition, model and task that docs/extending.md shows do what it says."""

import re
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from pausejax import data, parts
from pausejax.federated import models, tasks

PAGE = Path(__file__).resolve().parents[2] / "docs" / "extending.md"


@pytest.fixture(scope="module")
def shown():
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    with parts.collecting() as layer:
        for place, block in enumerate(block for block in blocks if "@pausejax." in block):
            # As a file of its own would be: annotations are looked up in the globals.
            exec(compile(block, f"{PAGE}:{place}", "exec"), {"__name__": f"shown_{place}"})
    return layer


def test_data_set(shown):
    loaded = data.load(shown.get("dataset", "waves"), samples=50)
    assert loaded.input_shape == (1,) and len(loaded.train_inputs) == 25


def test_partition(shown):
    part = shown.get("partition", "neighbours")
    shares = data.partition.split(part, np.zeros(900), 3, 0)
    assert shares.sizes.tolist() == [300, 300, 300]


def test_model(shown):
    model = models.build(shown.get("model", "small"), (8, 8, 1), 10, width=5)
    params = jax.eval_shape(model.init, jax.random.key(0)).params
    assert sum(leaf.size for leaf in jax.tree.leaves(params)) == 65 * 5 + 6 * 10


def test_task(shown):
    part = shown.get("task", "absolute_error")
    task = tasks.build(part, {})
    np.testing.assert_array_equal(task.loss(jnp.asarray([[1.0], [3.0]]), jnp.asarray([2.0, 0.5])), [1.0, 2.5])
    assert task.metric_name == "test_mae" and not task.higher_is_better
