"""The study spec: what it accepts, and one clear line for each mistake."""

import pytest

from pausejax.sweep import spec
from pausejax.sweep.spec import SpecError, parse

MINIMAL = {"rounds": 20, "policy": [{"name": "pause"}]}


def problems(document, **options):
    with pytest.raises(SpecError) as caught:
        parse(document, source="study.toml", **options)
    return caught.value.problems


def test_minimal_spec_has_every_default():
    study = parse(MINIMAL)
    assert study.seeds == (0,)
    assert study.axes["num_clients"] == (30,)
    assert study.policies[0].label == "pause"


def test_symbols_of_the_papers_are_accepted():
    document = {**MINIMAL, "reward": {"alpha": [10, 20], "γ": 3}, "network": {"K": 12, "m": 4}}
    study = parse(document)
    assert study.axes["generalization_weight"] == (10.0, 20.0)
    assert study.axes["privacy_weight"] == (3.0,)
    assert study.axes["num_clients"] == (12,)


def test_overrides_replace_values_under_any_spelling():
    document = {**MINIMAL, "reward": {"alpha": 10}}
    study = parse(document, overrides=["reward.generalization_weight=7", "rounds=31", "learning_rate=0.5"])
    assert study.axes["generalization_weight"] == (7.0,)
    assert study.rounds == 31
    assert study.axes["learning_rate"] == (0.5,)
    assert study.document["training"]["learning_rate"] == 0.5
    assert document == {**MINIMAL, "reward": {"alpha": 10}}


@pytest.mark.parametrize(
    ("document", "expected"),
    [
        ({"roundz": 5}, "study.toml: roundz: unknown key; did you mean 'rounds'?"),
        (
            {"training": {"learning_rat": 1}},
            "training.learning_rat: unknown key; did you mean 'learning_rate'",
        ),
        ({"training": {"alpha": 1}}, "training.alpha: unknown key; it belongs in [reward]"),
        ({"rounds": 0}, "rounds = 0: must be an integer >= 1"),
        ({"rounds": [10, 20]}, "rounds = [10, 20]: must be an integer >= 1, not an axis"),
        ({"rounds": True}, "rounds = true: must be an integer >= 1"),
        ({"mode": "trainig"}, 'mode = "trainig": must be one of training, bandit'),
        ({"seeds": 0}, "seeds = 0: must be a count >= 1 or a list of distinct integers"),
        ({"seeds": [1, 1]}, "seeds = [1, 1]: must be"),
        ({"seeds": [-1]}, "seeds = [-1]: must be"),
        ({"eval_every": 0}, "eval_every = 0: must be an integer >= 1"),
        ({"reward": {"beta": 1.0}}, "reward.beta = 1.0: must be a finite number > 1"),
        ({"reward": {"beta": 1.000000001}}, "reward.beta = 1.000000001: must be a finite number > 1"),
        (
            {"training": {"learning_rate": 1e60}},
            "training.learning_rate = 1e+60: must be a finite number > 0",
        ),
        ({"privacy": {"eps_bar": 1e-60}}, "privacy.eps_bar = 1e-60: must be a finite number > 0"),
        ({"training": {"batch_size": 10**400}}, "must be an integer >= 1"),
        ({"rounds": 2**40}, "rounds = 1099511627776: must be an integer >= 1"),
        ({"seeds": 5_000_000_000}, "seeds = 5000000000: must be a count >= 1"),
        ({"mode": "bandit", "data": {"partition": "shards"}}, 'mode = "bandit" knows equal shares only'),
        ({"reward": {"alpha": -1}}, "reward.alpha = -1: must be a finite number >= 0"),
        ({"reward": {"gamma": float("nan")}}, "reward.gamma = nan: must be a finite number >= 0"),
        ({"reward": {"zeta": "big"}}, 'reward.zeta = "big": must be a finite number > 0'),
        ({"reward": {"alpha": 1, "generalization_weight": 2}}, "is a second value for generalization_weight"),
        ({"reward": {"alpha": []}}, "reward.alpha = []: an axis needs at least one value"),
        ({"reward": {"alpha": [1, 1.0]}}, "an axis must not repeat a value"),
        ({"reward": 3}, "reward = 3: must be a table"),
        ({"privacy": {"privacy_budget": 0}}, "privacy.privacy_budget = 0: must be a finite number > 0"),
        ({"privacy": {"clip": "l2"}}, 'privacy.clip = "l2": must be one of coordinate, vector'),
        ({"privacy": {"private": 1}}, "privacy.private = 1: must be true or false"),
        ({"network": {"m": 40}}, "network.clients_per_round = 40: must be <= network.num_clients = 30"),
        ({"network": {"num_clients": 2.5}}, "network.num_clients = 2.5: must be an integer >= 1"),
        ({"network": {"latency": "trace"}}, 'network.trace_file = "": goes with network.latency = "trace"'),
        ({"data": {"dataset": "digit"}}, 'data.dataset = "digit": must be one of digits'),
        ({"policy": []}, "policy = []: must be one or more [[policy]] tables"),
        ({"policy": [{"name": "pauze"}]}, "did you mean 'pause'?"),
        ({"policy": [{"label": "x"}]}, "policy.name = None: must be one of"),
        ({"policy": [{"name": "pause"}] * 2}, 'policy.label = "pause": is used twice'),
        ({"policy": [{"name": "random", "selector": "exact"}]}, "the policy random does not read it"),
        ({"policy": [{"name": "pause", "alfa": 3}]}, "policy.alfa: unknown key"),
    ],
)
def test_each_mistake_is_one_clear_line(document, expected):
    found = problems({**MINIMAL, **document})
    assert len(found) == 1
    assert expected in found[0]
    assert found[0].startswith("study.toml: ")
    assert "\n" not in found[0]


def test_ten_mistakes_are_reported_together():
    document = {
        "rounds": -1,
        "seeds": "many",
        "colour": "blue",
        "network": {"num_clients": 0, "latensy": "two_speed"},
        "training": {"batch_size": 0.5, "optimizer": "adamw"},
        "reward": {"beta": 0.5, "alpha": []},
        "policy": [{"name": "pouse"}],
    }
    found = problems(document)
    assert len(found) == 10
    assert len(set(found)) == 10


@pytest.mark.parametrize("override", ["rounds", "a.b.c=1", "=3"])
def test_malformed_override(override):
    assert "must be section.key=value" in problems(MINIMAL, overrides=[override])[0]


def test_missing_and_broken_files(tmp_path):
    with pytest.raises(SpecError, match="can't be read: No such file"):
        spec.load(tmp_path / "none.toml")
    broken = tmp_path / "broken.toml"
    broken.write_text("rounds = = 3")
    with pytest.raises(SpecError, match="is no valid TOML"):
        spec.load(broken)


def test_same_algorithm_with_and_without_privacy_has_two_labels():
    study = parse({**MINIMAL, "policy": [{"name": "fedavg"}, {"name": "fedavg", "private": False}]})
    assert [policy.label for policy in study.policies] == ["fedavg", "fedavg_no_privacy"]
