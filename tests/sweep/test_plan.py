"""From a study to runs and groups."""

from pausejax.sweep.plan import make_plan
from pausejax.sweep.spec import parse

POLICIES = [{"name": "pause"}, {"name": "random"}]


def plan(**document):
    return make_plan(parse({"rounds": 10, "policy": POLICIES, **document}))


def test_axes_multiply_and_traced_ones_share_a_program():
    found = plan(seeds=3, reward={"alpha": [1, 2], "gamma": [0, 5]}, training={"learning_rate": [0.1, 0.2]})
    assert len(found.runs) == 2 * 2 * 2 * 2 * 3
    assert len(found.groups) == 2
    assert found.axes == ("learning_rate", "generalization_weight", "privacy_weight")


def test_static_axes_make_groups():
    found = plan(network={"num_clients": [10, 20]}, training={"batch_size": [5, 10]})
    assert len(found.groups) == 2 * 2 * 2
    assert sorted(position for group in found.groups for position in group.members) == list(
        range(len(found.runs))
    )


def test_a_policy_has_no_axis_that_it_does_not_read():
    found = plan(selection={"selector": ["exact", "brute"]})
    assert [run.algorithm for run in found.runs] == ["pause", "pause", "random"]
    assert "selector" not in found.runs[-1].values


def test_bandit_mode_has_no_learning_axes():
    found = plan(mode="bandit", training={"learning_rate": [0.1, 0.2]})
    assert len(found.runs) == 2
    assert "learning_rate" not in found.runs[0].values


def test_a_policy_table_overrides_a_shared_axis():
    found = make_plan(
        parse({"reward": {"alpha": [1, 2]}, "policy": [{"name": "pause", "alpha": 9}, {"name": "random"}]})
    )
    values = [(run.policy, run.values["generalization_weight"]) for run in found.runs]
    assert values == [("pause", 9.0), ("random", 1.0), ("random", 2.0)]


def test_identity_is_that_of_the_run_alone():
    few = plan(seeds=[3], reward={"alpha": [2.0]})
    many = plan(seeds=[1, 3], reward={"alpha": [1.0, 2.0]})
    known = {run.identity(many.study) for run in many.runs}
    assert len(known) == len(many.runs)
    assert {run.identity(few.study) for run in few.runs} <= known
    longer = plan(seeds=[3], reward={"alpha": [2.0]}, rounds=11)
    assert not {run.identity(longer.study) for run in longer.runs} & known


def test_the_proximal_term_is_compiled_in_only_where_it_is_used():
    found = plan(training={"proximal_weight": [0.0, 0.1, 0.2]})
    assert len(found.groups) == 4
