"""The coordinates of a result: what a run has no value of is marked, in the kind that the parameter is."""

import numpy as np

from pausejax import kinds
from pausejax.results import layout
from pausejax.study.plan import make_plan


def test_what_a_run_does_not_have_is_marked():
    policies = [{"name": "random"}, {"name": "sa_pause", "annealing_steps": 7, "temperature_divisor": 3.0}]
    plan = make_plan(kinds.parse({"mode": "bandit", "rounds": 2, "policy": policies}))
    found = layout.coordinates(plan)
    without, having = (np.flatnonzero(found["algorithm"] == name)[0] for name in ("random", "sa_pause"))
    assert (found["annealing_steps"][without], found["annealing_steps"][having]) == (-1, 7)
    assert np.isnan(found["temperature_divisor"][without]) and found["temperature_divisor"][having] == 3
    assert found["annealing_steps"].dtype.kind == "i"
