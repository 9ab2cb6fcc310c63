"""From segments of records to what runs leave, against loops over made-up rounds; and what rounds cost."""

from typing import NamedTuple

import numpy as np
import pytest

from pausejax import kinds
from pausejax.clients import records
from pausejax.study.simulation import Segment

K, M, ROUNDS, RUNS = 5, 2, 12, 4


def study(**more):
    document = {"mode": "bandit", "rounds": ROUNDS, "eval_every": 5, "policy": [{"name": "random"}]}
    return kinds.parse({**document, "network": {"num_clients": K, "clients_per_round": M}, **more})


@pytest.fixture(scope="module")
def played():
    """What four runs do in every round."""
    rng = np.random.default_rng(0)
    latency = rng.uniform(0.5, 1.5, (RUNS, ROUNDS)).astype(np.float32)
    selected = np.sort(rng.permuted(np.tile(np.arange(K), (RUNS, ROUNDS, 1)), axis=2)[..., :M], axis=2)
    selected[2, 3, 1] = -1
    return {
        "round_latency": latency,
        "reward": rng.normal(size=(RUNS, ROUNDS)).astype(np.float32),
        "test_metric": rng.random((RUNS, ROUNDS)).astype(np.float32),
        "selected": selected.astype(np.int32),
        "max_releases": rng.integers(0, 9, (RUNS, ROUNDS)).cumsum(axis=1).astype(np.int32),
        "diverged_round": np.tile(np.arange(1, ROUNDS + 1, dtype=np.int32), (RUNS, 1)) * [[0], [1], [0], [1]],
    }


def segments_of(played, *parts):
    """Segments of some rounds, first to last, with the rows that were played in them."""
    return [
        Segment(
            first, last, np.array(rows), {name: part[rows, first - 1 : last] for name, part in played.items()}
        )
        for first, last, rows in parts
    ]


WHOLE = ((1, 5, [0, 1, 2, 3, 3]), (6, 10, [2, 0, 3, 1, 1, 1]), (11, 12, [3, 1, 0, 2]))


@pytest.mark.parametrize("rows", [[0, 1, 2, 3], [3, 0, 2, 1], [2], [1, 3]])
def test_runs_leave_their_own_rounds_wherever_they_were_played(played, rows):
    found, releases = records.finish(
        study(mode="training"), segments_of(played, *WHOLE), np.array(rows), K, "test_accuracy"
    )
    for name in ("round_latency", "reward", "selected"):
        np.testing.assert_array_equal(found[name], played[name][rows])
    np.testing.assert_array_equal(releases, played["max_releases"][rows])
    for place, row in enumerate(rows):
        elapsed = [sum(float(x) for x in played["round_latency"][row, :t]) for t in range(1, ROUNDS + 1)]
        np.testing.assert_array_equal(found["elapsed"][place], np.float32(elapsed))
        taken = played["selected"][row]
        assert found["counts"][place].tolist() == [int((taken == k).sum()) for k in range(K)]
        assert found["releases"][place].tolist() == found["counts"][place].tolist()
    # After rounds 5, 10 and the last.
    np.testing.assert_array_equal(found["test_accuracy"], played["test_metric"][rows][:, [4, 9, 11]])
    assert found["diverged_round"].tolist() == [12 if row in (1, 3) else 0 for row in rows]
    assert (
        found["counts"].dtype == found["selected"].dtype == np.int32 and found["elapsed"].dtype == np.float32
    )


def test_what_stops_leaves_nothing_beyond(played):
    """Row 1 was played until round 5 alone, and reached the time in it."""
    played = {**played, "round_latency": np.ones((RUNS, ROUNDS), np.float32)}
    played["round_latency"][1] = 1.5
    parts = ((1, 5, [0, 1, 2, 3]), (6, 10, [0, 2, 3]))
    told = study(mode="training", stop_at_latency=6.0)
    rows = np.arange(RUNS)
    found, releases = records.finish(told, segments_of(played, *parts), rows, K, "test_accuracy")
    last = [6, 4, 6, 6]
    for row, end in enumerate(last):
        for name in ("elapsed", "round_latency", "reward"):
            assert np.isfinite(found[name][row]).tolist() == [t <= end for t in range(1, ROUNDS + 1)]
        assert ((found["selected"][row] == -1).all(axis=1)).tolist() == [
            t > end for t in range(1, ROUNDS + 1)
        ]
        assert found["counts"][row].sum() == (played["selected"][row, :end] >= 0).sum()
        assert found["elapsed"][row, end - 1] == 6.0
        assert (releases[row] == -1).tolist() == [t > end for t in range(1, ROUNDS + 1)]
        assert np.isfinite(found["test_accuracy"][row]).tolist() == [end >= 5, False, False]
    assert found["diverged_round"].tolist() == [0, 4, 0, 6]
    # Of runs that the time never ends the last round counts.
    late = study(mode="training", stop_at_latency=1e6)
    whole, _ = records.finish(late, segments_of(played, *parts), rows, K, "test_accuracy")
    assert whole["diverged_round"].tolist() == [0, 5, 0, 10]


@pytest.mark.parametrize(("duration", "limit", "last"), [(0.7, 7.0, 10), (0.9, 8.1, 9), (0.7, 7.01, 11)])
def test_rounds_of_a_decimal_duration_reach_a_decimal_limit(played, duration, limit, last):
    """Ten rounds of float32(0.7) s last 6.9999999 s."""
    played = {**played, "round_latency": np.full((RUNS, ROUNDS), duration, np.float32)}
    told, rows = study(mode="training", stop_at_latency=limit), np.arange(RUNS)
    found, _ = records.finish(told, segments_of(played, *WHOLE), rows, K, "test_accuracy")
    assert np.isfinite(found["elapsed"]).sum(axis=1).tolist() == [last] * RUNS
    for end in range(1, ROUNDS + 1):
        cut = {name: array[:, :end] for name, array in played.items()}
        segments = segments_of(cut, (1, end, [0, 1, 2, 3]))
        assert (records.running(segments, rows, limit) == (end < last)).all()


def test_clients_that_nobody_selects_have_a_count_too(played):
    played = {**played, "selected": np.zeros((RUNS, ROUNDS, M), np.int32) + np.arange(M, dtype=np.int32)}
    (segment,) = segments_of(played, (1, ROUNDS, [0, 1, 2, 3]))
    found, _ = records.finish(study(), [segment], np.arange(RUNS), K, "test_accuracy")
    assert found["counts"].tolist() == [[ROUNDS, ROUNDS, 0, 0, 0]] * RUNS


def test_releases_are_those_of_the_rounds_that_count(played):
    """Row 1 stops in its fourth round; what it and others have not released is selected all the same."""
    out = np.random.default_rng(4).random((RUNS, ROUNDS, M)) < 0.6
    released = np.where(out, played["selected"], -1)
    played = {**played, "round_latency": np.ones((RUNS, ROUNDS), np.float32), "released": released}
    played["round_latency"][1] = 1.5
    told = study(mode="training", stop_at_latency=6.0)
    found, _ = records.finish(told, segments_of(played, *WHOLE), np.arange(RUNS), K, "test_accuracy")
    for row, end in enumerate((6, 4, 6, 6)):
        taken, sent = played["selected"][row, :end], released[row, :end]
        assert found["releases"][row].tolist() == [int((sent == k).sum()) for k in range(K)]
        assert found["counts"][row].sum() == (taken >= 0).sum() > found["releases"][row].sum()
    assert "released" not in found


def test_nobody_fails_in_runs_of_a_study_of_failures_that_have_none(played):
    (segment,) = segments_of(played, (1, 5, [0, 1, 2, 3]))
    failures = study(network={"failure_probability": [0.0, 0.5]})
    found, _ = records.finish(failures, [segment], np.arange(RUNS), K, "test_accuracy")
    assert found["failed_count"].tolist() == [[0] * 5 + [-1] * (ROUNDS - 5)] * RUNS


def test_a_run_goes_on_until_it_has_reached_the_time(played):
    segments = segments_of(played, *WHOLE[:2])
    reached = played["round_latency"][:, :10].astype(np.float64).sum(axis=1)
    for rows in ([0, 1, 2, 3], [3, 0], [2]):
        for row in rows:
            exactly = records.running(segments, np.array(rows), reached[row])
            above = records.running(segments, np.array(rows), reached[row] * (1 + 1e-6))
            assert exactly.tolist() == [bool(reached[r] < reached[row]) for r in rows]
            assert above.tolist() == [bool(reached[r] <= reached[row]) for r in rows]
    assert records.running([], np.array([7, 8]), 1.0).tolist() == [True, True]


def test_what_mode_bandit_does_not_have_is_not_left(played):
    found, _ = records.finish(study(), segments_of(played, *WHOLE), np.arange(RUNS), K, "test_accuracy")
    regrets = {"regret", "pseudo_regret", "regret_own_history"}
    own = {"round_latency", "reward", "selected", "elapsed", "counts", "releases"}
    assert found.keys() == own | regrets
    # Runs whose rounds do not wait for all have recorded none.
    assert all(np.isnan(found[name]).all() for name in regrets)


@pytest.mark.parametrize(
    ("rounds", "every", "expected"), [(10, 5, [5, 10]), (12, 5, [5, 10, 12]), (3, 5, [3]), (3, 1, [1, 2, 3])]
)
def test_models_are_evaluated_every_so_often_and_in_the_end(rounds, every, expected):
    assert records.evaluated_rounds(rounds, every).tolist() == expected


class Record(NamedTuple):
    round_latency: np.ndarray
    selected: np.ndarray
    absent: None
    own: dict
    fault: str = "elsewhere"


@pytest.mark.parametrize(("first", "last"), [(1, 4), (6, 9), (7, 10), (8, 10), (10, 10)])
def test_a_segment_ends_with_the_last_round(first, last):
    """Of calls of four rounds over two runs, of which the last may be longer than what is left."""
    latency, harm = np.arange(8.0).reshape(4, 2), 10 + np.arange(8.0).reshape(4, 2)
    record = Record(latency, np.arange(24).reshape(4, 2, 3), None, {"harm": harm})
    segment = records.to_host(first, np.array([5, 6]), record, 10)
    kept = last + 1 - first
    assert (segment.first_round, segment.last_round, segment.positions.tolist()) == (first, last, [5, 6])
    assert segment.records.keys() == {"round_latency", "selected", "harm"}
    np.testing.assert_array_equal(segment.records["round_latency"], latency[:kept].T)
    np.testing.assert_array_equal(segment.records["harm"], harm[:kept].T)
    assert segment.records["selected"].shape == (2, kept, 3)
