"""What settings are judged by: means of metrics, and constraints."""

import math

import numpy as np

from pausejax.searches.goal import Constraint, Goal, Score


def test_a_score_is_of_means_turned_so_that_more_is_better():
    bound = Constraint("max_leakage", "<=", 40.0)
    goal = Goal(("regret", "reward"), (False, True), (bound,), 75, by_latency=False)
    figures = np.array([[1.0, 5.0, 40.0], [3.0, 7.0, 60.0]])
    assert goal.score(figures) == Score((-2.0, 6.0), 0.25)
    assert math.isinf(goal.score(np.where(figures == 60, np.nan, figures)).violation)
