"""The study spec: what it accepts, and one clear line for each mistake."""

import enum
import re
import tomllib
from pathlib import Path

import pytest
import tomli_w

import pausejax
from pausejax import kinds as spec
from pausejax.kinds import parse
from pausejax.study import document
from pausejax.study.axes import Range, Sampling
from pausejax.study.plan import make_plan
from pausejax.study.spec import SpecError

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
        ({"training": {"learning_rat": 1}}, "learning_rat: unknown key; did you mean 'learning_rate'"),
        ({"training": {"alpha": 1}}, "training.alpha: unknown key; it belongs in [reward]"),
        ({"rounds": 0}, "rounds = 0: must be an integer >= 1"),
        ({"rounds": [10, 20]}, "rounds = [10, 20]: must be an integer >= 1 and <= 16777216, not a list"),
        ({"rounds": True}, "rounds = true: must be an integer >= 1"),
        ({"mode": "trainig"}, 'mode = "trainig": must be one of training, bandit'),
        ({"seeds": 0}, "seeds = 0: must be a count from 1 to 1048576, or a list of distinct integers"),
        ({"seeds": [1, 1]}, "seeds = [1, 1]: must be"),
        ({"seeds": [-1]}, "seeds = [-1]: must be"),
        ({"eval_every": 0}, "eval_every = 0: must be an integer >= 1"),
        ({"reward": {"beta": 1.0}}, "reward.beta = 1.0: must be a finite number > 1"),
        ({"reward": {"beta": 1.000000001}}, "reward.beta = 1.000000001: must be a finite number > 1"),
        ({"training": {"learning_rate": 1e60}}, "learning_rate = 1e+60: must be a finite number > 0"),
        ({"privacy": {"eps_bar": 1e-60}}, "privacy.eps_bar = 1e-60: must be a finite number > 0"),
        ({"training": {"batch_size": 10**400}}, "must be an integer >= 1"),
        ({"rounds": 2**40}, "rounds = 1099511627776: must be an integer >= 1"),
        ({"seeds": 5_000_000_000}, "seeds = 5000000000: must be a count from 1 to 1048576"),
        ({"mode": "bandit", "data": {"partition": "shards"}}, 'must be "iid" with mode = "bandit"'),
        ({"reward": {"alpha": -1}}, "reward.alpha = -1: must be a finite number >= 0"),
        ({"reward": {"gamma": float("nan")}}, "reward.gamma = nan: must be a finite number >= 0"),
        ({"reward": {"zeta": "big"}}, 'reward.zeta = "big": must be a finite number > 0'),
        ({"reward": {"alpha": 1, "generalization_weight": 2}}, "gives generalization_weight a second value"),
        (
            {"privacy": {"laplace": {"sensitivity": 1}, "laplace.sensitivity": 2}},
            "privacy.laplace.sensitivity = 2: gives sensitivity a second value",
        ),
        (
            {"policy": [{"name": "pause", "laplace.sensitivity": 2, "laplace": {"sensitivity": 1}}]},
            "policy.laplace.sensitivity = 1: gives sensitivity a second value",
        ),
        ({"reward": {"alpha": []}}, "reward.alpha = []: must list one value or more"),
        ({"reward": {"alpha": [1, 1.0]}}, "must not list a value twice"),
        ({"reward": 3}, "reward = 3: must be a table"),
        ({"reward": {1: 3}}, "reward.1: unknown key"),
        ({"privacy": {"privacy_budget": 0}}, "privacy.privacy_budget = 0: must be a finite number > 0"),
        ({"privacy": {"clip": "l2"}}, 'privacy.clip = "l2": must be one of coordinate, vector'),
        ({"privacy": {"private": 1}}, "privacy.private = 1: must be true or false"),
        ({"network": {"m": 40}}, "network.clients_per_round = 40: must be <= network.num_clients = 30"),
        ({"network": {"num_clients": 2.5}}, "network.num_clients = 2.5: must be an integer >= 1"),
        ({"network": {"latency": "trace"}}, 'network.trace_file = "": needed with network.latency = "trace"'),
        ({"data": {"dataset": "digit"}}, 'data.dataset = "digit": must be one of digits'),
        ({"policy": []}, "policy = []: must be one or more [[policy]] tables"),
        ({"policy": [{"name": "pauze"}]}, "did you mean 'pause'?"),
        ({"policy": [{"label": "x"}]}, "policy.name = None: must be one of"),
        ({"policy": [{"name": "pause"}] * 2}, 'policy.label = "pause": is used twice'),
        (
            {"policy": [{"name": "pause", "label": "\u00e9"}, {"name": "pause", "label": "e\u0301"}]},
            'policy.label = "e\u0301": is used twice',
        ),
        ({"policy": [{"name": "pause", "label": "_own"}]}, 'policy.label = "_own": must not begin with _'),
        ({"policy": [{"name": "pause", "label": "A "}]}, 'policy.label = "A ": must have single spaces'),
        ({"policy": [{"name": "pause", "label": "A  b"}]}, 'policy.label = "A  b": must have single spaces'),
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


def test_keys_may_be_members_of_an_enumeration():
    class Weight(str, enum.Enum):  # noqa: UP042 str() of a StrEnum is its value
        LEAKAGE = "gamma"

    study = parse({**MINIMAL, "reward": {Weight.LEAKAGE: 3.0}})
    assert study.axes["privacy_weight"] == (3.0,)


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


def test_an_override_of_several_lines_is_refused():
    (line,) = problems(MINIMAL, overrides=["reward.gamma=5\nrounds=7"])
    assert line.endswith("must set one key, not 2")


def test_a_spec_may_begin_with_the_mark_of_an_editor(tmp_path):
    path = tmp_path / "spec.toml"
    path.write_text('mode = "bandit"\n', encoding="utf-8-sig")
    assert document.read(path) == {"mode": "bandit"}


def test_missing_and_broken_files(tmp_path):
    with pytest.raises(SpecError, match="can't be read: No such file"):
        spec.load(tmp_path / "none.toml")
    broken = tmp_path / "broken.toml"
    broken.write_text("rounds = = 3")
    with pytest.raises(SpecError, match="must be valid TOML"):
        spec.load(broken)


def test_same_algorithm_with_and_without_privacy_has_two_labels():
    study = parse({**MINIMAL, "policy": [{"name": "fedavg"}, {"name": "fedavg", "private": False}]})
    assert [policy.label for policy in study.policies] == ["fedavg", "fedavg_no_privacy"]


RANGE = {"log_uniform": [1, 100]}
NEEDS = "a range needs a table [sampling] with n, the number of points"


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ({"log_unifrom": [1, 2]}, "{uniform = [low, high]} or {log_uniform = [low, high]}"),
        ({}, "reward.alpha = {}: a range must be"),
        ({"uniform": [1, 2], "log_uniform": [1, 2]}, "a range must be"),
        ({"int_uniform": [1, 2]}, "reward.alpha = {int_uniform = [1, 2]}: a range must be {uniform"),
        ({"uniform": [1, 2, 3]}, "a range must have two ends, [low, high]"),
        ({"uniform": 3}, "reward.alpha = {uniform = 3}: a range must have two ends"),
        ({"uniform": [-1, 3]}, "{uniform = [-1, 3]}: an end of the range must be a finite number >= 0"),
        ({"uniform": [1, float("inf")]}, "an end of the range must be a finite number >= 0"),
        ({"uniform": [1, float("nan")]}, "an end of the range must be a finite number >= 0"),
        ({"uniform": ["1", 3]}, '{uniform = ["1", 3]}: an end of the range must be a finite number >= 0'),
        ({"uniform": [True, 3]}, "an end of the range must be a finite number >= 0"),
        ({"uniform": [3, 3]}, "low end must be below its high end"),
        ({"uniform": [3, 1]}, "low end must be below its high end"),
        ({"uniform": [1, 1 + 1e-9]}, "low end must be below its high end"),
        ({"log_uniform": [0, 1]}, "the low end must be > 0 for log_uniform"),
        (
            {"log_uniform": [1e-60, 1]},
            "an end of the range must be a finite number >= 0; absolute values except 0: from 1e-15 to 1e+15",
        ),
        ([1, {"uniform": [1, 2]}], "reward.alpha = {uniform = [1, 2]}: must be a finite number >= 0"),
    ],
)
def test_each_mistake_in_a_range_is_one_clear_line(value, expected):
    found = problems({**MINIMAL, "reward": {"alpha": value, "gamma": RANGE}, "sampling": {"n": 4}})
    assert len(found) == 1
    assert expected in found[0]


@pytest.mark.parametrize(
    ("document", "expected"),
    [
        ({"reward": {"beta": {"uniform": [1, 3]}}}, "an end of the range must be a finite number > 1"),
        ({"network": {"K": {"uniform": [9, 30]}}}, "a range must be {int_uniform = [low, high]}"),
        ({"network": {"K": {"int_uniform": [9, 30.5]}}}, "an end of the range must be an integer >= 1"),
        ({"network": {"K": {"int_uniform": [0, 30]}}}, "an end of the range must be an integer >= 1"),
        ({"data": {"dataset": {"uniform": [1, 2]}}}, "must be one of digits"),
        ({"privacy": {"private": {"uniform": [0, 1]}}}, "must be true or false"),
        ({"rounds": {"int_uniform": [1, 2]}}, "rounds = {int_uniform = [1, 2]}: must be an integer >= 1"),
        ({"network": {"m": {"int_uniform": [1, 60]}}}, "must be <= network.num_clients = 30"),
        ({"sampling": {"n": 0}}, "sampling.n = 0: must be an integer >= 1 and <= 1048576"),
        ({"sampling": {"n": 2**20 + 1}}, "sampling.n = 1048577: must be"),
        ({"sampling": {"n": [4, 8]}}, "sampling.n = [4, 8]: must be an integer"),
        ({"sampling": {"method": "random"}}, "sampling.n: missing. Set the number of points"),
        ({"sampling": {"n": 4, "method": "halton"}}, "must be one of sobol, random, latin_hypercube"),
        ({"sampling": {"n": 4, "seed": -1}}, "sampling.seed = -1: must be an integer >= 0"),
        ({"sampling": {"n": 4, "points": 3}}, "sampling.points: unknown key"),
        ({"sampling": 64}, "sampling = 64: must be a table"),
        ({"stop_at_latency": -1}, "stop_at_latency = -1: must be a finite number >= 0"),
        ({"stop_at_latency": [10, 20]}, "must be a finite number >= 0, not a list"),
        ({"seeds": 300_000}, "the study has 1200000 runs; must be <= 1048576"),
    ],
)
def test_each_mistake_beside_a_range_is_one_clear_line(document, expected):
    sampled = {**MINIMAL, "sampling": {"n": 4}, "reward": {"gamma": RANGE}}
    found = problems({**sampled, **document})
    assert len(found) == 1
    assert expected in found[0]


def test_ranges_and_the_sampling_table_need_each_other():
    policies = [{"name": "pause", "zeta": RANGE}, {"name": "pause", "label": "b", "zeta": RANGE}]
    found = problems({**MINIMAL, "reward": {"alpha": RANGE}, "policy": policies})
    assert found == (
        f"study.toml: reward.generalization_weight: {NEEDS}",
        f"study.toml: policy.exploitation_gain: {NEEDS}",
    )
    (line,) = problems({**MINIMAL, "sampling": {"n": 8}})
    assert line.startswith("study.toml: sampling = {n = 8}: needs a range")


@pytest.mark.parametrize(
    ("document", "expected"),
    [
        ({"zip": ["alpha", "gamma"]}, 'zip = ["alpha", "gamma"]: must be a list of groups'),
        ({"zip": [["alpha"]]}, "must be a list of groups of two or more names"),
        ({"zip": [["alpha", 3]]}, "must be a list of groups of two or more names"),
        ({"zip": "alpha"}, "must be a list of groups"),
        ({"zip": [["alpha", "gama"]]}, "gama must be a parameter; did you mean"),
        ({"zip": [["alpha", "rounds"]]}, "rounds must be a parameter"),
        ({"zip": [["alpha", "α"]]}, "must name generalization_weight only once"),
        ({"zip": [["alpha", "gamma"], ["alpha", "zeta"]]}, "must name generalization_weight only once"),
        (
            {"zip": [["alpha", "gamma", "zeta"]]},
            "equal lengths of two or more: generalization_weight has 3 and exploitation_gain has 2",
        ),
        ({"zip": [["alpha", "beta"]]}, "generalization_weight has 3 and generalization_exponent has 1"),
        ({"zip": [["beta", "omega"]]}, "generalization_exponent has 1 and temperature_margin has 1"),
        (
            {"zip": [["alpha", "slow_range"]], "sampling": {"n": 2}, "network": {"slow_range": RANGE}},
            "slow_range must be a list, not a range. Ranges are sampled together anyway",
        ),
        (
            {
                "zip": [["gamma", "eps_bar"]],
                "privacy": {"eps_bar": [1, 1, 1]},
                "reward": {"gamma": [2, 2, 3]},
            },
            "must not have a point twice",
        ),
        (
            {"zip": [["alpha", "gamma"]], "policy": [{"name": "pause", "gamma": [1, 2]}]},
            'policy "pause": zip = ["generalization_weight", "privacy_weight"]: the lists must have',
        ),
        (
            {
                "zip": [["alpha", "gamma"]],
                "policy": [{"name": "pause", "gamma": RANGE}],
                "sampling": {"n": 2},
            },
            "privacy_weight must be a list, not a range",
        ),
        (
            {
                "zip": [["alpha", "gamma"]],
                "policy": [{"name": "pause", "zip": [["zeta", "gamma"]], "zeta": [1, 2, 3]}],
            },
            "the study zips privacy_weight for all policies already",
        ),
        (
            {"policy": [{"name": "random", "zip": [["alpha", "J"]]}], "selection": {"J": [1, 2, 3]}},
            "the policy random does not read annealing_steps",
        ),
        (
            {"policy": [{"name": "pause", "zip": [["alpha", "zeta"]]}]},
            'policy "pause": zip = ["generalization_weight", "exploitation_gain"]: the lists must have',
        ),
        ({"policy": [{"name": "pause", "zip": 3}]}, "policy.zip = 3: must be a list of groups"),
    ],
)
def test_each_mistake_in_a_zip_is_one_clear_line(document, expected):
    lists = {"alpha": [1, 2, 3], "gamma": [4, 5, 6], "zeta": [7, 8]}
    found = problems({**MINIMAL, "reward": lists, **document})
    assert len(found) == 1
    assert expected in found[0]


def test_only_zipped_lists_may_repeat_a_value():
    lists = {"alpha": [1, 1, 2], "gamma": [0, 5, 5], "zeta": [3, 3]}
    (line,) = problems({**MINIMAL, "zip": [["alpha", "gamma"]], "reward": lists})
    assert "reward.zeta = [3, 3]: must not list a value twice" in line


def test_an_override_keeps_some_policies_by_label_or_name():
    policies = [
        {"name": "pause", "label": "PAUSE"},
        {"name": "fedavg", "label": "FedAvg, private"},
        {"name": "fedavg", "label": "FedAvg, no privacy", "private": False},
        {"name": "random"},
    ]
    document = {**MINIMAL, "policy": policies}

    def kept(value):
        return [policy.label for policy in parse(document, overrides=[f"policy={value}"]).policies]

    assert kept("PAUSE") == kept("pause") == kept('["PAUSE", "pause"]') == ["PAUSE"]
    assert kept("fedavg") == ["FedAvg, private", "FedAvg, no privacy"]
    assert kept("FedAvg, no privacy") == ["FedAvg, no privacy"]
    assert kept('["random", "PAUSE"]') == ["PAUSE", "random"]
    # Tables are policies as in the spec, not names of some.
    assert kept('[{name="random"}]') == ["random"]


def test_an_override_by_policies_that_are_not_there():
    (line,) = problems(MINIMAL | {"policy": [{"name": "pause", "label": "PAUSE"}]}, overrides=["policy=PAUS"])
    assert line == """--set policy=PAUS: "PAUS": must be among PAUSE, pause; did you mean 'PAUSE'?"""
    for tables in (None, 3, [], [3], [{"label": []}], {"name": 1}, "pause"):
        assert any(
            "--set policy=x" in line
            for line in problems(MINIMAL | {"policy": tables}, overrides=["policy=x"])
        )
    for value in ("3", "[]", '["random", 3]'):
        assert "[[policy]]" in problems(MINIMAL, overrides=[f"policy={value}"])[0]


def test_ranges_by_override():
    study = parse(
        MINIMAL, overrides=["reward.alpha={log_uniform=[1,100]}", "sampling.n=8", "sampling.method=random"]
    )
    assert study.axes["generalization_weight"] == Range("log_uniform", 1.0, 100.0)
    assert study.sampling == Sampling(8, "random", 0)


def test_an_override_that_no_policy_sees_is_refused():
    policies = [{"name": "pause", "alpha": 9}, {"name": "sa_pause", "label": "cold", "alpha": [1, 2]}]
    document = {**MINIMAL, "policy": policies}
    (line,) = problems(document, overrides=["reward.alpha=3", "gamma=2"])
    assert line == (
        '--set reward.alpha=3: has no effect: all policies that read it set it themselves: "pause", "cold"'
    )
    assert parse({**document, "policy": [*policies, {"name": "random"}]}, overrides=["alpha=3"])
    with pytest.raises(SpecError, match=r'selector=brute: has no effect.*: "pause"$'):
        parse(
            {**MINIMAL, "policy": [{"name": "pause", "selector": "exact"}, {"name": "random"}]},
            overrides=["selector=brute"],
        )


@pytest.mark.parametrize("key", ["stop_at_latency", "selection_gap", "keep_models", "client_metrics"])
def test_ensembles_know_no_client_selection(key):
    value = 5 if key == "stop_at_latency" else True
    document = {"mode": "ensemble", "policy": [{"name": "efl_fg"}], key: value}
    (line,) = problems(document)
    assert f"study.toml: {key} = " in line and 'not allowed with mode = "ensemble"' in line


def test_ensembles_are_checked_at_every_sampled_point():
    document = {"mode": "ensemble", "policy": [{"name": "efl_fg"}], "sampling": {"n": 8}}
    (line,) = problems({**document, "network": {"budget": {"uniform": [0.5, 3.0]}}})
    assert "network.budget = 0." in line and "must be >= 1" in line
    assert parse({**document, "network": {"uplink": {"int_uniform": [50, 60]}}})


def test_the_written_spec_is_the_same_study():
    document = {
        "rounds": 20,
        "stop_at_latency": 4,
        "zip": [["alpha", "gamma"]],
        "sampling": {"n": 4},
        "reward": {"alpha": [1, 2], "gamma": [3, 4], "zeta": RANGE},
        "policy": [{"name": "pause", "eta": {"uniform": [0.1, 0.2]}}, {"name": "random"}],
    }
    study = parse(document)
    again = parse(tomllib.loads(tomli_w.dumps(dict(study.document))))
    assert again == study
    assert study.stop_at_latency == 4.0 and isinstance(study.stop_at_latency, float)


@pytest.mark.parametrize(("place", "runs"), [(0, (1 + 1) * 4 * 20), (1, 2 * 64 * 2 * 5), (2, 2)])
def test_the_examples_in_the_manual_come_to_what_it_says(place, runs):
    page = (Path(__file__).resolve().parents[2] / "docs" / "spec.md").read_text(encoding="utf-8")
    examples = re.findall(r"```toml\n(.*?)```", page, re.DOTALL)
    assert len(make_plan(parse(tomllib.loads(examples[place]))).runs) == runs


@pytest.mark.parametrize("function", [pausejax.simulate, pausejax.search])
@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"num_clients": 4, "network": {"num_clients": 3}}, "num_clients = 3: gives num_clients a second"),
        ({"network": {"num_clients": 3}, "num_clients": 4}, "num_clients = 4: gives num_clients a second"),
        ({"K": 4, "network": {"num_clients": 3}}, "gives num_clients a second"),
        ({"policy": [{"name": "fedavg"}]}, "policy: is no parameter of this function"),
    ],
)
def test_a_call_that_gives_one_thing_twice_is_refused(function, given, expected):
    """Such as `simulate("pause", num_clients=4, **spec)`, if the spec has `num_clients` too."""
    with pytest.raises(SpecError, match=expected):
        function("pause", **given)


def test_a_call_may_give_a_section_and_parameters_beside_it():
    document = {"num_clients": 4, "network": {"clients_per_round": 2}, "alpha": 3.0}
    study = parse({**MINIMAL, **document}, flat=True)
    assert study.axes["num_clients"] == (4,) and study.axes["clients_per_round"] == (2,)
    assert study.axes["generalization_weight"] == (3.0,)
