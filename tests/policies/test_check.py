"""Mistakes in a policy of one's own are named, when it is traced or when it has been played."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from pausejax import parts
from pausejax.policies.base import Clients, Cohort, Feedback, Policy, View, memoryless
from pausejax.policies.check import (
    ABSENT,
    FINE,
    UNFIT_MEMBERS,
    UNFIT_SUM,
    UNFIT_TOTAL,
    UNFIT_WEIGHT,
    Fault,
    checked,
    fault,
    problems_of,
    refuse_faults,
)

K = 4
CLIENTS = Clients(jnp.full(K, 0.25), jnp.ones(K))


def mine():
    """Stands for a policy of one's own."""


MINE = parts.read("policy", mine)
VIEW = View(jnp.int32(1), jnp.ones(K), lambda clients: jnp.zeros(clients.shape))


@pytest.mark.parametrize(
    ("returned", "message"),
    [
        (jnp.arange(2), "select must return a Cohort, not ArrayImpl"),
        (
            Cohort(jnp.arange(5), jnp.ones(5)),
            r"members must be int32 \[n\] with n from 1 to 4, not int32 \[5\]",
        ),
        (Cohort(jnp.zeros(0, int), jnp.ones(0)), r"members must be int32 .* not int32 \[0\]"),
        (Cohort(jnp.ones(2), jnp.ones(2)), r"members must be int32 .* not float32 \[2\]"),
        (Cohort(jnp.arange(2), jnp.ones(3)), r"weights must be float32 \[2\], not float32 \[3\]"),
        (Cohort(jnp.arange(2), jnp.arange(2)), r"weights must be float32 \[2\], not int32 \[2\]"),
        (
            Cohort(jnp.arange(2), jnp.ones(2), jnp.ones(1)),
            r"total must be a float32 scalar, not float32 \[1\]",
        ),
        (Cohort(jnp.arange(2), jnp.ones(2), jnp.int32(1)), r"total must be a float32 scalar, not int32 \[\]"),
    ],
)
def test_what_select_returns(returned, message):
    policy = checked(memoryless(lambda key, state, view: returned), MINE, K)
    with pytest.raises(ValueError, match=f"policy mine: .*{message}"):
        policy.select(jax.random.key(0), CLIENTS, VIEW)


@pytest.mark.parametrize(
    ("returned", "message"),
    [
        ({"seen": jnp.zeros(K)}, "update: the new state must have the same pytree structure"),
        (
            (jnp.zeros(K + 1), jnp.int32(0)),
            r"update: state\[0\] must stay float32 \[4\], not become float32 \[5\]",
        ),
        ((jnp.zeros(K), jnp.float32(0)), r"update: state\[1\] must stay int32 \[\], not become float32 \[\]"),
    ],
)
def test_what_update_returns(returned, message):
    policy = Policy(lambda *_: (jnp.zeros(K), 0), lambda *_: None, lambda *_: returned)
    policy = checked(policy, MINE, K)
    feedback = Feedback(*[jnp.zeros(2)] * 6)
    with pytest.raises(ValueError, match=f"policy mine: {message}"):
        policy.update(policy.init(jax.random.key(0), CLIENTS), VIEW, feedback)


def test_a_checked_policy_hands_on_what_it_is_told():
    policy = Policy(
        lambda key, clients: {"key": key, "share": clients.data_share},
        lambda *_: None,
        lambda state, view, feedback: state | {"key": view.round + feedback.members[0]},
    )
    policy = checked(policy, MINE, K)
    state = policy.init(jnp.int32(3), CLIENTS)
    assert state["key"] == 3 and state["share"] is CLIENTS.data_share
    feedback = Feedback(jnp.full(1, 6), *[jnp.zeros(1)] * 5)
    assert policy.update(state, VIEW, feedback)["key"] == 7


def test_selections_are_checked_by_value():
    assert problems_of(np.array([[0, 2, -1], [-1, -1, -1], [3, 1, 0]]), K) == ()
    selected = np.array([[0, 1, -1], [2, 2, -1], [0, 4, 1], [3, -2, 0]])
    assert problems_of(selected, K) == (
        "round 3: client 4 does not exist; must be from 0 to 3",
        "round 2: client 2 is selected twice",
    )
    available = np.ones((4, K), bool)
    available[0, 1] = False
    assert problems_of(selected[:1], K, available[:1]) == (
        "round 1: client 1 is selected, but is not available",
    )
    assert problems_of(selected[3:], K) == ("round 1: client -2 does not exist; must be from 0 to 3",)
    nobody = np.zeros((1, K), bool)
    assert problems_of(np.array([[0, 0]]), K, ~nobody) == ("round 1: client 0 is selected twice",)
    assert problems_of(np.array([[0, -1]]), K, nobody, first_round=8) == (
        "round 8: client 0 is selected, but is not available",
    )
    assert problems_of(np.array([[K + 1, 3, -1]]), K, np.array([[True, True, False, True]])) == (
        "round 1: client 5 does not exist; must be from 0 to 3",
    )


def test_the_first_fault_of_all_runs_is_the_one_that_is_said():
    """Two runs of four rounds from round 11 on, two clients each; later faults and other runs are silent."""
    selected = np.array([[[0, 1], [0, 1], [2, 2], [0, 1]], [[0, 1], [2, 3], [1, 9], [3, 3]]])
    for faults, said in (
        ([[0, 0, 1, 0], [0, 0, 1, 1]], "round 13: client 2 is selected twice"),
        ([[0, 0, 0, 1], [0, 0, 1, 1]], "round 13: client 9 does not exist; must be from 0 to 3"),
        ([[0, 0, 2, 0], [0, ABSENT + 3, 1, 1]], "round 12: client 3 is selected, but is not available"),
        (
            [[UNFIT_WEIGHT, 1, 1, 1], [0, 0, 0, 0]],
            "round 11: a weight of the cohort is 0; must be finite, >= 0, and 0 for a pad",
        ),
        (
            [[0, 0, 0, 1], [0, UNFIT_SUM, 0, 0]],
            "round 12: the sum of the cohort's weights is 5; must be 1 ± 0.001",
        ),
        (
            [[0, 0, 0, 1], [0, UNFIT_TOTAL, 0, 0]],
            "round 12: the cohort's total is 5; must be finite and > 0",
        ),
    ):
        with pytest.raises(parts.PartError) as raised:
            refuse_faults(MINE, Fault(np.array(faults), np.arange(8.0).reshape(2, 4)), selected, K, 11)
        assert str(raised.value) == f"{MINE.where}: {said}"
    refuse_faults(MINE, Fault(np.zeros((2, 4), int), np.zeros((2, 4))), selected, K, 11)


@pytest.mark.parametrize(
    ("members", "weights", "available", "wrong"),
    [
        ([0, 3], [0.5, 0.5], None, FINE),
        ([1, 2, -1], [0.5, 0.5, 0.0], [False, True, True, False], FINE),
        ([0, K], [0.5, 0.5], None, UNFIT_MEMBERS),
        ([0, -2], [0.5, 0.5], None, UNFIT_MEMBERS),
        ([2, 2], [0.5, 0.5], None, UNFIT_MEMBERS),
        ([0, 3], [0.5, np.inf], None, UNFIT_WEIGHT),
        ([0, 3], [1.5, -0.5], None, UNFIT_WEIGHT),
        ([0, -1], [0.5, 0.5], None, UNFIT_WEIGHT),
        ([0, 3], [1.5, 1.5], None, UNFIT_SUM),
        ([0, 3], [0.4, 0.4], None, UNFIT_SUM),
        ([0, -1], [0.0, 0.0], None, UNFIT_SUM),
        ([0, 3], [0.5, 0.5009], None, FINE),
        ([-1, -1], [0.0, 0.0], None, FINE),
        ([0, 3], [0.5, 0.5], [True, True, True, False], ABSENT + 3),
        ([0, K], [0.5, np.nan], [False] * K, UNFIT_MEMBERS),
        ([0, 0], [0.5, 0.5], None, UNFIT_MEMBERS),
        ([1, 1, 2, -1], [0.25, 0.25, 0.5, 0.0], None, UNFIT_MEMBERS),
        ([0, 3], [1.5, 1.5], [True, True, True, False], ABSENT + 3),
        ([0, 2, -1], [0.5, 0.5, 0.0], [False, True, True, True], ABSENT),
        ([0, -1, -1], [1.0, 0.0, 0.0], [True, True, True, False], FINE),
    ],
)
def test_what_is_wrong_with_a_cohort(members, weights, available, wrong):
    chosen = Cohort(np.int32(members), np.float32(weights))
    mask = None if available is None else np.asarray(available)
    found = jax.jit(fault, static_argnums=0)(K, chosen, mask)
    assert found.code == wrong
    if wrong in (UNFIT_WEIGHT, UNFIT_SUM):
        expected = np.float32(sum(weights) if wrong == UNFIT_SUM else weights[-1])
        assert found.weight == expected


@pytest.mark.parametrize(
    ("members", "total", "wrong"),
    [
        ([0, 3], 0.2, FINE),
        ([0, 3], 0.0, UNFIT_TOTAL),
        ([0, 3], -1.0, UNFIT_TOTAL),
        ([0, 3], np.inf, UNFIT_TOTAL),
        ([0, 3], np.nan, UNFIT_TOTAL),
        ([-1, -1], 0.0, FINE),
    ],
)
def test_the_total_of_a_cohort_is_positive(members, total, wrong):
    weights = np.full(2, 0.5 if members[0] >= 0 else 0.0, np.float32)
    found = jax.jit(fault, static_argnums=0)(K, Cohort(np.int32(members), weights, np.float32(total)), None)
    assert found.code == wrong
    if wrong:
        np.testing.assert_array_equal(found.weight, np.float32(total))


def test_a_cohort_without_total_counts_by_its_members():
    chosen = Cohort(jnp.array([2, 0, -1]), jnp.array([0.5, 0.5, 0.0]))
    policy = checked(memoryless(lambda key, state, view: chosen), MINE, K)
    assert policy.select(jax.random.key(0), CLIENTS, VIEW).total == 2
