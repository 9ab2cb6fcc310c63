"""Who goes on at a rung, against a plain reading of the rule; fronts against their definition."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pausejax.searches.goal import _rungs
from pausejax.searches.halving import Halving, Shown, fronts, order

VALUE = st.one_of(st.sampled_from([0.0, 0.5, 1.0, math.nan]), st.floats(-1e6, 1e6))


def best_of(recorded, count):
    """The places of the best, by repeated search for one that nobody left beats; ties to the earlier."""
    left, found = list(range(len(recorded))), []

    def worth(place):
        value, violation = recorded[place]
        return -violation, -math.inf if math.isnan(value) else value

    while left and len(found) < count:
        ahead = left[0]
        for place in left[1:]:
            if worth(place) > worth(ahead):
                ahead = place
        found.append(ahead)
        left.remove(ahead)
    return set(found)


@settings(deadline=None, max_examples=200)
@given(
    batches=st.lists(
        st.lists(st.tuples(VALUE, st.sampled_from([0.0, 0.0, 0.25, 3.0])), min_size=1, max_size=9),
        min_size=1,
        max_size=6,
    ),
    reduction=st.sampled_from([1.0, 2.0, 3.0, 4.5]),
)
def test_who_goes_on_is_who_is_among_the_best_of_all_so_far(batches, reduction):
    halving, recorded = Halving(2, reduction), []
    for batch in batches:
        first = len(recorded)
        recorded += batch
        passed = halving.go_on(0, [Shown((value,), violation) for value, violation in batch])
        expected = best_of(recorded, math.ceil(len(recorded) / reduction))
        assert passed == [first + place in expected for place in range(len(batch))]


def test_rungs_do_not_see_each_other():
    halving = Halving(3, 2.0)
    assert halving.go_on(0, [Shown((5.0,)), Shown((9.0,))]) == [False, True]
    assert halving.go_on(1, [Shown((1.0,))]) == [True]


@settings(deadline=None, max_examples=100)
@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3), st.integers(0, 3)), min_size=1, max_size=12))
def test_fronts_are_what_nobody_left_beats(points):
    values = np.array(points, float)
    front, alone = fronts(values)
    left, level = set(range(len(points))), 0
    while left:
        free = {
            place
            for place in left
            if not any(
                all(a >= b for a, b in zip(points[other], points[place], strict=True))
                and points[other] != points[place]
                for other in left
            )
        }
        assert free == set(np.flatnonzero(front == level).tolist())
        left -= free
        level += 1
    assert (alone >= 0).all()
    # In every front the ends of each objective are as alone as can be.
    for number in range(level):
        own = np.flatnonzero(front == number)
        for column in range(3):
            assert np.isinf(alone[own[np.argmax(values[own, column], axis=0)]]) or own.size > 2


def test_crowding_by_hand():
    _, alone = fronts(np.array([[0.0, 4.0], [1.0, 3.0], [3.0, 1.0], [4.0, 0.0]]))
    assert np.isinf(alone[[0, 3]]).all()
    np.testing.assert_allclose(alone[1:3], [3 / 4 + 3 / 4, 3 / 4 + 3 / 4])


def test_keeping_the_constraints_comes_first():
    shown = [Shown((9.0,), 0.5), Shown((1.0,)), Shown((math.nan,)), Shown((9.0,), 0.1)]
    assert order(shown).tolist() == [1, 2, 3, 0]
    assert order([]).tolist() == []


@pytest.mark.parametrize("reduction", [1.0, 3.0])
def test_somebody_always_goes_on(reduction):
    assert Halving(2, reduction).go_on(0, [Shown((math.nan,))]) == [True]


def test_rungs_are_a_reduction_apart_and_by_default_there_is_one_before_the_end():
    assert _rungs(27.0, 3.0, None, 0) == (9.0, 27.0)
    assert _rungs(27.0, 3.0, 1.0, 0) == (1.0, 3.0, 9.0, 27.0)
    assert _rungs(300.0, 3.0, 30.0, 25) == (25.0, 100.0, 300.0)
    assert _rungs(300.0, 1.0, None, 25) == (300.0,)
