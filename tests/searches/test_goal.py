"""What settings are judged by: means of metrics, and constraints."""

import math

import numpy as np
import pytest

import pausejax
from pausejax import kinds
from pausejax.federated import tasks
from pausejax.searches.goal import Constraint, Goal, Score, figures_at


@pytest.mark.parametrize(
    ("relation", "bound"), [(">=", 0.95), (">=", 0.7), ("<=", 0.9), ("<=", 20.1), ("<=", -0.1), (">=", 0.0)]
)
def test_a_value_that_equals_a_bound_up_to_rounding_keeps_it(relation, bound):
    constraint, beyond = Constraint("any", relation, bound), -1 if relation == ">=" else 1
    for value in np.nextafter(np.float32(bound), np.array([-np.inf, np.inf], np.float32)):
        assert constraint.violation(float(value)) == constraint.violation(float(np.float32(bound))) == 0
    assert constraint.violation(bound + beyond * 1e-5) == pytest.approx(1e-5 / (abs(bound) or 1))


def test_a_score_is_of_means_turned_so_that_more_is_better():
    bound = Constraint("max_leakage", "<=", 40.0)
    goal = Goal(("regret", "reward"), (False, True), (bound,), 75, by_latency=False)
    figures = np.array([[1.0, 5.0, 40.0], [3.0, 7.0, 60.0]])
    assert goal.score(figures) == Score((-2.0, 6.0), 0.25)
    assert math.isinf(goal.score(np.where(figures == 60, np.nan, figures)).violation)
    # An infinite mean is never the best, and may be worse than others.
    best, worst = (goal.score(np.where(figures == 7, sign * np.inf, figures)).values[1] for sign in (1, -1))
    assert math.isnan(best) and worst == -math.inf


@pytest.mark.parametrize(("horizon", "by_latency"), [(3, False), (3.5, True)])
def test_an_own_quantity_is_that_of_the_round_of_the_horizon(horizon, by_latency, own_parts):
    @pausejax.quantity
    def own(seen): ...

    study = kinds.parse({"rounds": 4, "policy": [{"name": "random"}], "quantities": ["own"]})
    goal = Goal(("own",), (True,), (), horizon, by_latency)
    arrays = {
        "counts": np.zeros((4, 30), np.int32),
        "elapsed": np.array([[1, 2, 3, 4]] * 3 + [[1, 2, np.nan, np.nan]], np.float32),
        "own": np.array([[5, 6, 7, 8], [5, 6, np.nan, 8], [5, 6, 7, 8], [5, 6, np.nan, np.nan]], np.float32),
        "diverged_round": np.array([4, 0, 3, 0]),
    }
    np.testing.assert_array_equal(figures_at(study, goal, arrays), [[7], [np.nan], [np.nan], [6]])


def test_the_metric_of_an_own_task_is_that_of_the_last_evaluation_up_to_the_horizon(own_parts):
    @pausejax.task
    def own():
        return tasks.classification()._replace(metric_name="test_own")

    asked = {"rounds": 4, "eval_every": 2, "policy": [{"name": "random"}], "training": {"task": "own"}}
    arrays = {
        "counts": np.zeros((2, 30), np.int32),
        "elapsed": np.tile(np.arange(1.0, 5.0, dtype=np.float32), (2, 1)),
        "test_own": np.array([[5, np.nan], [5, 6]], np.float32),
        "diverged_round": np.zeros(2, int),
    }
    for horizon, wanted in ((4, [[np.nan], [6]]), (2, [[5], [5]])):
        goal = Goal(("test_own",), (True,), (), horizon, False)
        np.testing.assert_array_equal(figures_at(kinds.parse(asked), goal, arrays), wanted)
