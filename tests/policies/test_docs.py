"""The parts that docs/extending.md shows work as they stand; docs/policies.md lists every policy."""

import itertools
import re
from pathlib import Path

import jax
import numpy as np
import pytest

from pausejax import network, parts

DOCS = Path(__file__).resolve().parents[2] / "docs"
PAGE = DOCS / "extending.md"
STICKY = DOCS.parent / "examples" / "sticky.py"
TABLE = (DOCS / "policies.md").read_text(encoding="utf-8").partition("## Availability")[0]


@pytest.fixture
def shown():
    """The layer of parts that the page's examples register; it is gone after the test."""
    with parts.collecting() as layer:
        for block in [*re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL), STICKY.read_text()]:
            exec(compile(block, str(PAGE), "exec"), {})
    return layer


def test_memoryless_example_takes_the_clients_in_turn(shown, play):
    policy = shown.get("policy", "in_turn").build(num_clients=5, clients_per_round=2, stride=2)
    members, weights, _ = play(policy, np.ones((5, 5)))
    assert [sorted(row) for row in members.tolist()] == [[2, 3], [0, 4], [1, 2], [3, 4], [0, 1]]
    np.testing.assert_allclose(weights, 0.5)


@pytest.mark.slow
def test_learning_example_keeps_members_by_its_own_parameter(shown, play):
    part = shown.get("policy", "sticky")
    stickiness = part.parameters["stickiness"]
    assert (stickiness.default, stickiness.traced, stickiness.section) == (0.5, True, "selection")
    kept = {}
    for value in (0.0, 0.5, 1.0):
        policy = part.build(num_clients=12, clients_per_round=3, stickiness=value)
        members, _, _ = play(policy, np.ones((400, 12)))
        kept[value] = np.mean([len(set(a) & set(b)) for a, b in itertools.pairwise(members)]) / 3
    assert kept[1.0] == 1
    # Of s who stay, s and (3 - s)² / (12 - s) by chance are there again: 3/4 for s = 0, and 1.768 on average.
    assert kept[0.0] == pytest.approx(0.75 / 3, abs=0.05)
    assert kept[0.5] == pytest.approx(1.768 / 3, abs=0.05)
    there = np.array([12, 2, 0, 12, 1, 5, 2, 9, 4])
    members, _, _ = play(policy, np.ones((9, 12)), available=np.arange(12) < there[:, None])
    assert (members >= 0).sum(axis=1).tolist() == [3, 2, 0, 3, 1, 3, 2, 3, 3]


def test_latency_example_is_a_law_with_a_mean(shown):
    law = shown.get("latency", "uniform_speed").build(num_clients=4, min_latency=0.05, slowest=2.05)
    assert law.sample(jax.random.key(0)).shape == (4,)
    expected = 0.05 + 0.25 * np.arange(1, 5)
    np.testing.assert_allclose(network.expected_latency(law), expected, rtol=0.03)


def test_table_lists_every_policy_and_what_it_reads():
    rows = re.findall(r"^\| `(\w+)` \|[^|]*\|([^|]*)\|", TABLE, re.MULTILINE)
    policies = parts.registered_parts().of("policy")
    assert sorted(name for name, _ in rows) == sorted(policies)
    for name, cell in rows:
        own = policies[name].parameters
        spelled = {spelling: n for n, p in own.items() for spelling in (n, *p.spellings)}
        read = [spelled.get(word.strip("`"), word) for word in cell.split()]
        assert sorted(read) == sorted(own), name
