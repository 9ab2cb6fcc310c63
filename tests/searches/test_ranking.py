"""The order of settings, fronts and crowding against their definitions."""

import itertools
import math

import numpy as np
from hypothesis import example, given, settings
from hypothesis import strategies as st

from pausejax.searches.goal import Score
from pausejax.searches.ranking import fronts, leading, order

VALUE = st.one_of(st.sampled_from([0.0, 0.5, 1.0, -math.inf, math.nan]), st.floats(-1e6, 1e6))


@settings(deadline=None, max_examples=100)
@given(st.lists(st.tuples(VALUE, st.sampled_from([0.0, 0.0, 0.25, math.nan])), min_size=1, max_size=9))
def test_the_order_is_by_violation_then_nan_then_value_and_ties_go_to_the_earlier(pairs):
    def key(place):
        value, violation = pairs[place]
        worth = -math.inf if math.isnan(value) else value
        return math.inf if math.isnan(violation) else violation, math.isnan(value), -worth, place

    expected = sorted(range(len(pairs)), key=key)
    assert order([Score((value,), violation) for value, violation in pairs]).tolist() == expected


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


LEVEL = st.integers(0, 3).map(float)


@settings(deadline=None, max_examples=100)
@given(
    st.lists(
        st.tuples(LEVEL, LEVEL | st.just(math.nan), st.sampled_from([0.0, 0.0, 0.5, 2.0, math.nan])),
        min_size=1,
        max_size=9,
    )
)
# (2, 2) breaks a constraint and beats (1, 1), which is on the front of those that keep it.
@example(
    [(0.0, 4.0, 0.0), (4.0, 0.0, 0.0), (1.0, 1.0, 0.0), (0.0, 3.0, 0.0), (3.0, 0.0, 0.0), (2.0, 2.0, 0.5)]
)
def test_who_breaks_a_constraint_or_lacks_a_value_beats_nobody(rows):
    """The order of several metrics, and the members of the front, against their definition."""
    scores = [Score((first, second), violation) for first, second, violation in rows]

    def rank(place):
        violation = rows[place][2]
        return math.inf if math.isnan(violation) else violation, math.isnan(rows[place][1])

    def beats(other, place):
        pair = [[-math.inf if math.isnan(v) else v for v in rows[i][:2]] for i in (other, place)]
        return rank(other) == rank(place) and pair[0] != pair[1] and all(np.greater_equal(*pair))

    places = order(scores).tolist()
    assert [rank(place) for place in places] == sorted(rank(place) for place in places)
    for before, after in itertools.combinations(places, 2):
        assert not beats(after, before)
    best = min(map(rank, range(len(rows))))
    front = {
        place
        for place in range(len(rows))
        if rank(place) == best and not any(beats(other, place) for other in range(len(rows)))
    }
    assert set(places[: len(front)]) == front
    assert leading(scores).tolist() == places[: len(front)]


def test_crowding_by_hand():
    _, alone = fronts(np.array([[0.0, 4.0], [1.0, 3.0], [3.0, 1.0], [4.0, 0.0]]))
    assert np.isinf(alone[[0, 3]]).all()
    np.testing.assert_allclose(alone[1:3], [3 / 4 + 3 / 4, 3 / 4 + 3 / 4])
