"""From a study to runs and groups."""

import hashlib
import json

import pytest

from pausejax.kinds import parse
from pausejax.study.plan import make_plan
from pausejax.study.spec import SpecError
from pausejax.study.study import FORMAT

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
    grouped = [run.identity for group in found.groups for run in group.runs]
    assert sorted(grouped) == sorted(found.identities) and len(set(grouped)) == len(found.runs)


def test_a_policy_has_no_axis_that_it_does_not_read():
    found = plan(selection={"selector": ["exact", "brute"]})
    assert [run.algorithm for run in found.runs] == ["pause", "pause", "random"]
    assert "selector" not in found.runs[-1].values


def test_bandit_mode_has_no_learning_axes():
    with pytest.raises(SpecError, match="no run of this study reads it"):
        plan(mode="bandit", training={"learning_rate": [0.1, 0.2]})
    assert "learning_rate" not in plan(mode="bandit").runs[0].values


def test_a_policy_table_overrides_a_shared_axis():
    found = make_plan(
        parse({"reward": {"alpha": [1, 2]}, "policy": [{"name": "pause", "alpha": 9}, {"name": "random"}]})
    )
    values = [(run.policy, run.values["generalization_weight"]) for run in found.runs]
    assert values == [("pause", 9.0), ("random", 1.0), ("random", 2.0)]


def test_identity_is_that_of_the_run_alone():
    few = plan(seeds=[3], reward={"alpha": [2.0]})
    many = plan(seeds=[1, 3], reward={"alpha": [1.0, 2.0]})
    known = set(many.identities)
    assert len(known) == len(many.runs)
    assert set(few.identities) <= known
    longer = plan(seeds=[3], reward={"alpha": [2.0]}, rounds=11)
    assert not set(longer.identities) & known


def test_zipped_lists_advance_together():
    found = plan(
        zip=[["alpha", "gamma"], ["privacy_budget", "eta"]],
        reward={"alpha": [1, 1, 2], "gamma": [0, 5, 5], "zeta": [1, 2]},
        privacy={"eps_bar": [10, 20], "budget_decay": [0.1, 0.2]},
        policy=[{"name": "pause"}],
    )
    assert len(found.runs) == 3 * 2 * 2
    names = ("generalization_weight", "privacy_weight")
    assert {tuple(run.values[name] for name in names) for run in found.runs} == {(1, 0), (1, 5), (2, 5)}
    names = ("privacy_budget", "budget_decay")
    assert {tuple(run.values[name] for name in names) for run in found.runs} == {(10, 0.1), (20, 0.2)}


def test_cohorts_that_grow_with_the_network_are_zipped():
    found = plan(
        zip=[["K", "m"]], network={"K": [10, 100], "m": [2, 20]}, policy=[{"name": "pause"}], mode="bandit"
    )
    assert [(run.values["num_clients"], run.values["clients_per_round"]) for run in found.runs] == [
        (10, 2),
        (100, 20),
    ]


def test_a_policy_that_reads_a_part_of_a_zipped_group_runs_each_value_once():
    found = plan(
        mode="bandit",
        zip=[["gamma", "kappa"]],
        reward={"gamma": [1, 1, 5]},
        selection={"kappa": [1, 30, 70]},
        policy=[{"name": "sa_pause"}, {"name": "pause"}, {"name": "sa_pause", "label": "hot", "kappa": 9}],
    )
    gammas = {}
    for run in found.runs:
        gammas.setdefault(run.policy, []).append(run.values["privacy_weight"])
    assert gammas == {"sa_pause": [1, 1, 5], "pause": [1, 5], "hot": [1, 5]}


def test_a_policy_zips_its_own_axes():
    found = plan(
        reward={"gamma": [1, 5]},
        policy=[
            {"name": "sa_pause", "zip": [["J", "kappa"]], "J": [100, 500], "kappa": [30, 70]},
            {"name": "pause", "zip": [["gamma", "zeta"]], "zeta": [0.5, 2]},
        ],
    )
    names = ("annealing_steps", "temperature_divisor", "privacy_weight")
    annealed = [tuple(run.values[n] for n in names) for run in found.runs if run.policy == "sa_pause"]
    assert sorted(annealed) == [(100, 30, 1), (100, 30, 5), (500, 70, 1), (500, 70, 5)]
    names = ("privacy_weight", "exploitation_gain")
    exact = [tuple(run.values[n] for n in names) for run in found.runs if run.policy == "pause"]
    assert exact == [(1, 0.5), (5, 2)]


def test_a_partition_runs_only_the_values_that_it_reads():
    found = plan(
        data={"partition": ["iid", "dirichlet_label", "shards"], "concentration": [0.1, 1.0, 10.0]},
        policy=[{"name": "pause"}],
    )
    read = [(run.values["partition"], run.values.get("concentration")) for run in found.runs]
    assert read == [("iid", None), *(("dirichlet_label", c) for c in (0.1, 1.0, 10.0)), ("shards", None)]
    assert [run.values.get("shards_per_client") for run in found.runs] == [None] * 4 + [2]
    assert len(found.groups) == 5


def test_rounds_without_late_clients_have_one_run_whatever_becomes_of_late_clients():
    network = {"ending": ["all", "deadline", "buffered", "first"], "late": ["released", "stopped"]}
    found = plan(mode="bandit", network=network, policy=[{"name": "random"}])
    read = [(run.values["ending"], run.values.get("late")) for run in found.runs]
    both = [[(ending, late) for late in ("released", "stopped")] for ending in ("deadline", "first")]
    assert read == [("all", None), *both[0], ("buffered", None), *both[1]]
    assert len(set(found.identities)) == 6
    # What the runs of older studies are called does not change.
    for ending in network["ending"]:
        (alone,) = plan(mode="bandit", network={"ending": ending}, policy=[{"name": "random"}]).identities
        assert alone in found.identities
    for late in (["released"], ["stopped", "released"]):
        with pytest.raises(SpecError, match=r"network\.late"):
            plan(network={"ending": ["all", "buffered"], "late": late})


def test_what_is_recorded_or_cut_short_is_part_of_the_identity_only_if_asked_for():
    found = plan()
    run, study = found.runs[0], found.study
    keys = ("mode", "rounds", "eval_every")
    # Parameters that were added later are left out at their defaults, so that older results hold.
    added = {"ending", "mechanism", "stop_at_epsilon", "federated_algorithm", "aggregator"}
    added |= {"held_out_share"}
    assert added <= run.values.keys()
    values = {name: value for name, value in run.values.items() if name not in added}
    settings = {"algorithm": "pause", "values": values, **{key: getattr(study, key) for key in keys}}
    text = json.dumps({**settings, "format": FORMAT, "use": []}, sort_keys=True) + str(run.seed)
    assert found.identities[0] == hashlib.sha256(text.encode()).hexdigest()[:16]
    plain = plan().identities
    assert plan(stop_at_latency=0).identities == plain
    assert plan(selection_gap=False).identities == plain
    assert plan(keep_models=False, client_metrics=False).identities == plain
    changed = [
        plan(stop_at_latency=30).identities,
        plan(stop_at_latency=31.5).identities,
        plan(selection_gap=True).identities,
    ]
    assert len({plain, *changed}) == 4
    assert plan(stop_at_latency=30).identities == plan(stop_at_latency=30.0).identities


def test_the_order_of_runs_is_policy_axes_seeds():
    found = plan(seeds=[4, 2], reward={"alpha": [2, 1]})
    assert [(r.policy, r.values["generalization_weight"], r.seed) for r in found.runs] == [
        (policy, alpha, seed) for policy in ("pause", "random") for alpha in (2.0, 1.0) for seed in (4, 2)
    ]
