"""A study that was extended has the result of one that was not, whichever of its runs were first."""

import numpy as np
import pytest

import pausejax
from pausejax.clients.kind import KIND
from pausejax.kinds import parse

SMALL = {"mode": "bandit", "rounds": 6, "seeds": 2, "num_clients": 5, "clients_per_round": 2}
AXES = {
    "ending": ["all", "deadline", "buffered"],
    "failure_probability": [0.0, 0.4],
    "availability": ["always", "bernoulli"],
    "stop_at_epsilon": [0.0, 20.0],
}


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    [
        "failure_probability",
        *(pytest.param(name, marks=pytest.mark.slow) for name in AXES if name != "failure_probability"),
    ],
)
def test_the_order_of_extensions_leaves_no_trace(name, tmp_path):
    whole = pausejax.simulate("random", **SMALL, **{name: AXES[name]}, round_deadline=0.3)
    for order in (AXES[name], AXES[name][::-1]):
        folder = tmp_path / str(order[0])
        for count in range(1, len(order) + 1):
            values = {name: order[:count]}
            found = pausejax.simulate("random", **SMALL, **values, round_deadline=0.3, out=folder)
        places = [found["identity"].values.tolist().index(one) for one in whole["identity"].values]
        assert set(found.data_vars) == set(whole.data_vars)
        for variable in whole.data_vars:
            np.testing.assert_array_equal(found[variable].values[places], whole[variable].values, variable)
    for variable, true in {"failed_count": 0, "late_count": 0, "available_count": 5}.items():
        if variable in whole and name != "ending":
            own = whole[variable].values[whole[name].values == AXES[name][0]]
            assert (own == true).all()
    if name == "ending":
        assert (whole["late_count"].values[whole["ending"].values != "deadline"] == 0).all()
        assert (whole["available_count"].values[whole["ending"].values != "buffered"] == 5).all()


@pytest.mark.parametrize("seed", range(20))
def test_what_runs_do_not_record_is_what_their_settings_fix(seed):
    draw = np.random.default_rng(seed)
    study = parse(
        {
            "mode": "bandit",
            "rounds": 7,
            "policy": [{"name": "random"}],
            "network": {
                "K": [4, 6],
                "m": 2,
                "ending": ["all", "first", "buffered"],
                "failure_probability": [0.0, 0.5],
                "availability": ["always", "bernoulli"],
            },
        }
    )
    table = study.outputs.variables
    sizes = {"round": 7, "slot": 2, "client": 6}
    runs, last, clients = 3, draw.integers(1, 8, 3), draw.choice([4, 6], 3)
    whole = {
        name: draw.integers(0, 4, (runs, *(sizes[dim] for dim in variable.dims))).astype(variable.dtype)
        for name, variable in table.items()
    }
    ended = np.arange(1, 8) > last[:, None]
    for name, variable in table.items():
        if variable.dims[:1] == ("round",):
            whole[name][ended] = variable.fill
    for name in ("counts", "releases"):
        whole[name][np.arange(6) >= clients[:, None]] = -1
    may_lack = {"failed_count", "late_count", "available_count", "arrived", "staleness", "regret", "reward"}
    lacking = {name for name in may_lack if draw.random() < 0.5}
    found = KIND.complete(table, {name: whole[name] for name in table if name not in lacking})
    assert set(found) == set(table)
    for name in table:
        true = whole[name]
        if name in lacking:
            values = {"failed_count": 0, "late_count": 0, "available_count": clients[:, None]}
            true = np.full_like(whole[name], table[name].fill)
            if name in values:
                true = np.where(ended, -1, values[name])
        np.testing.assert_array_equal(found[name], true, name)
        assert found[name].dtype == table[name].dtype
    again = KIND.complete(table, found)
    for name in table:
        np.testing.assert_array_equal(again[name], found[name])
