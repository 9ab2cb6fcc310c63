"""The policies that docs/policies.md shows work as they stand there."""

import re
from pathlib import Path

import numpy as np
import pytest

from pausejax import parts

PAGE = Path(__file__).resolve().parents[2] / "docs" / "policies.md"


@pytest.fixture
def shown():
    """The parts that the page's examples register, by name; they are gone after the test."""
    with parts.collecting() as layer:
        for block in re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL):
            exec(compile(block, str(PAGE), "exec"), {})
    return layer.of("policy")


def test_memoryless_example_takes_the_clients_in_turn(shown, play):
    policy = shown["round_robin"].build(num_clients=5, clients_per_round=2)
    members, weights, _ = play(policy, np.ones((5, 5)))
    assert members.ravel().tolist() == list(range(5)) * 2
    np.testing.assert_allclose(weights, 0.5)


def test_learning_example_settles_on_the_fastest(shown, play):
    latency = np.tile([0.5, 0.1, 0.4, 0.2, 0.3], (60, 1))
    policy = shown["last_seen_fastest"].build(num_clients=5, clients_per_round=2, exploration=0.0)
    members, _, _ = play(policy, latency)
    assert set(members[:3].ravel().tolist()) == set(range(5))
    assert (np.sort(members[3:], axis=1) == [1, 3]).all()


def test_table_lists_every_policy():
    named = re.findall(r"^\| `(\w+)`", PAGE.read_text(), re.MULTILINE)
    assert sorted(named) == sorted(parts.everything().of("policy"))
