"""Parts whose parameters have one name: apart they are free, together each has a name of its own."""

import dataclasses
import itertools
import pickle
import tomllib

import numpy as np
import pytest
import tomli_w

import pausejax
from pausejax import kinds
from pausejax.commands import main as cli
from pausejax.parts.signature import read
from pausejax.study.plan import make_plan
from pausejax.study.spec import SpecError

LAW = """
import jax.numpy as jnp
import pausejax
from pausejax.network import Law

@pausejax.latency
def {name}(*, num_clients: int, pace: float = {pace}, width: int = {width}) -> Law:
    return Law(lambda key: jnp.full(num_clients, {factor} * pace * width, jnp.float32))
"""
SHARED = LAW.replace("width: int = {width}", "width: float = pausejax.Parameter({width}, high=9.0)")


@pytest.fixture
def files(tmp_path):
    """Two files, each with a latency law; `pace` and `width` are parameters of both, with unlike defaults."""
    for name, pace, width, factor in (("first", 1.0, 2, 1.0), ("second", 3.0, 5, 10.0)):
        code = LAW.format(name=name, pace=pace, width=width, factor=factor)
        (tmp_path / f"{name}.py").write_text(code)
    return [str(tmp_path / "first.py"), str(tmp_path / "second.py")]


def document(files, laws, **network):
    table = {"num_clients": 4, "clients_per_round": 2, "latency": laws, **network}
    return {"mode": "bandit", "rounds": 3, "use": files, "network": table, "policy": [{"name": "random"}]}


@pytest.mark.parametrize(("law", "pace", "width"), [("first", 1.0, 2), ("second", 3.0, 5)])
def test_apart_each_part_has_the_plain_name(files, law, pace, width):
    study = kinds.parse(document(files, law))
    assert (study.axes["pace"], study.axes["width"]) == ((pace,), (width,))
    assert kinds.parse(document(files, law, pace=0.5)).axes["pace"] == (0.5,)


def test_a_part_may_use_the_name_of_one_of_the_package_that_is_not_there(tmp_path):
    code = "import pausejax\n@pausejax.policy\ndef mine(*, annealing_steps: float = 7.5): ..."
    (tmp_path / "mine.py").write_text(code)
    spec = {"mode": "bandit", "use": [str(tmp_path / "mine.py")]}
    study = kinds.parse({**spec, "policy": [{"name": "mine"}]})
    assert study.words.parameters["annealing_steps"].default == 7.5
    study = kinds.parse({**spec, "policy": [{"name": "sa_pause", "annealing_steps": 9}]})
    assert study.policies[0].axes == {"annealing_steps": (9,)}
    annealed = {"name": "sa_pause", "sa_pause.annealing_steps": 9}
    both = kinds.parse({**spec, "policy": [annealed, {"name": "mine"}]})
    assert both.policies[0].axes == {"sa_pause_annealing_steps": (9,)}
    assert both.words.parameters["mine_annealing_steps"].default == 7.5


def test_a_part_that_disagrees_with_every_study_is_refused(tmp_path):
    code = "import pausejax\n@pausejax.policy\ndef mine(*, clients_per_round: float = 0.5): ..."
    (tmp_path / "mine.py").write_text(code)
    spec = {"mode": "bandit", "use": [str(tmp_path / "mine.py")], "policy": [{"name": "mine"}]}
    with pytest.raises(SpecError, match="must equal the parameter of this name of every study"):
        kinds.parse(spec)


def test_a_part_of_another_kind_with_the_name_of_a_policy_is_used_only_if_its_key_is_given(own_parts):
    exec(
        "@pausejax.policy\ndef pareto_(*, width: int = 1): ...\n"
        "@pausejax.latency\ndef pareto_(*, width: float = 0.5): ...",
        {"pausejax": pausejax},
    )
    spec = {"mode": "bandit", "policy": [{"name": "pareto_", "width": 3}]}
    assert kinds.parse(spec).policies[0].axes == {"width": (3,)}
    with pytest.raises(SpecError, match="pareto_: width: must equal the parameter of this name"):
        kinds.parse({**spec, "network": {"latency": "pareto_"}})


TOML = """
[network]
latency = ["first", "second"]
{said}
"""


@pytest.mark.parametrize(
    "said",
    [
        '"first.pace" = [1.0, 2.0]\n"second.width" = 7',
        "first.pace = [1.0, 2.0]\nsecond.width = 7",
        "[network.first]\npace = [1.0, 2.0]\n[network.second]\nwidth = 7",
        "first_pace = [1.0, 2.0]\nsecond_width = 7",
    ],
)
def test_every_spelling_of_toml_means_the_same(files, said):
    network = tomllib.loads(TOML.format(said=said))["network"]
    study = kinds.parse(document(files, **{"laws": network.pop("latency"), **network}))
    assert study.axes["first_pace"] == (1.0, 2.0) and study.axes["second_width"] == (7,)
    assert study.axes["second_pace"] == (3.0,) and study.axes["first_width"] == (2,)
    again = pickle.loads(pickle.dumps(study))
    assert make_plan(again).identities == make_plan(study).identities
    assert again.parts.get("latency", "first").reads == study.parts.get("latency", "first").reads
    # The spec that the result holds says the same.
    assert make_plan(kinds.parse(study.document)).identities == make_plan(study).identities


@pytest.mark.parametrize(
    "more",
    [
        {"network": {"pace": 2.0}},
        {"zip": [["pace", "width"]]},
        {"policy": [{"name": "random", "pace": 2.0}]},
        {"overrides": ["pace=2.0"]},
        {"overrides": ["network.pace=2.0"]},
    ],
)
def test_a_plain_name_that_is_ambiguous_is_one_line_with_what_to_write(files, more):
    spec = document(files, ["first", "second"], **more.pop("network", {}))
    overrides = more.pop("overrides", [])
    with pytest.raises(SpecError) as caught:
        kinds.parse({**spec, **more}, overrides=overrides)
    (line,) = caught.value.problems
    assert line.endswith('write "first.pace" or "second.pace"') and "pace" in line.partition(";")[0]


def test_what_two_parts_declare_alike_they_share(tmp_path):
    for name in ("first", "second"):
        (tmp_path / f"{name}.py").write_text(SHARED.format(name=name, pace=2.0, width=1.5, factor=1.0))
    names = [str(tmp_path / f"{name}.py") for name in ("first", "second")]
    study = kinds.parse(document(names, ["first", "second"], pace=4.0, width=2.5))
    assert study.axes["pace"] == (4.0,) and "first_pace" not in study.words.parameters
    with pytest.raises(SpecError, match=r"first\.pace: unknown key"):  # it would be the pace of `second` too
        kinds.parse(document(names, ["first", "second"], **{"first.pace": 4.0}))


def played(files, tmp_path, *more, **network):
    spec = document(files, ["first", "second"], **network)
    (tmp_path / "spec.toml").write_text(tomli_w.dumps(spec))
    out = str(tmp_path / "out")
    assert cli.main(["run", str(tmp_path / "spec.toml"), "--out", out, "--quiet", *more]) == cli.OK
    return pausejax.open(out).load()


@pytest.mark.slow
def test_each_part_gets_its_own_values_and_results_have_its_names(files, tmp_path, capsys):
    result = played(
        files,
        tmp_path,
        "--set",
        "network.second.pace=[0.5, 4.0]",
        **{"first.pace": [1.0, 2.0], "first.width": 3},
    )
    expected = [("first", pace, pace * 3) for pace in (1.0, 2.0)]
    expected += [("second", pace, 10 * pace * 5) for pace in (0.5, 4.0)]
    assert result.sizes["run"] == len(expected)
    for law, pace, latency in expected:
        chosen = pausejax.select(result, latency=law, **{f"{law}.pace": pace})
        np.testing.assert_allclose(chosen["elapsed"].values, [latency * np.arange(1, 4)], rtol=1e-6)
    assert set(result.attrs["axes"][1:-1].replace('"', "").split(", ")) == {
        "latency",
        "first_pace",
        "second_pace",
    }
    with pytest.raises(ValueError, match=r"'pace': .*, so write first\.pace or second\.pace"):
        pausejax.select(result, pace=2.0)
    table = pausejax.summary(result)
    assert {"first_pace", "second_pace"} <= set(table.columns)
    assert any("first.pace = 2" in label for label in table["setting"])
    out = str(tmp_path / "out")
    where = "latency=first,first.pace=2"
    assert cli.main(["report", out, "--where", where, "--measure", "elapsed", "--by", "first.pace"]) == cli.OK
    assert cli.main(["best", out, "--metric", "elapsed", "--per", "latency"]) == cli.OK
    assert "first.pace" in capsys.readouterr().out


BOTH = {
    "mode": "bandit",
    "rounds": 3,
    "num_clients": 4,
    "clients_per_round": 2,
    "latency": ["first", "second"],
}
"""A study of both laws, as keyword arguments."""


@pytest.mark.slow
def test_zips_and_simulate_take_such_names(files):
    paces = {"first.pace": [1.0, 2.0], "second.pace": [0.5, 4.0]}
    study = kinds.parse(
        {**document(files, ["first", "second"], **paces), "zip": [["first.pace", "first.width"]]}
        | {
            "network": {
                "latency": ["first"],
                "first.pace": [1.0, 2.0],
                "first.width": [3, 4],
                "second.pace": 1.0,
            }
        }
    )
    points = {(run.values["first_pace"], run.values["first_width"]) for run in make_plan(study).runs}
    assert points == {(1.0, 3), (2.0, 4)}
    result = pausejax.simulate(
        "random",
        use=files,
        **BOTH,
        **paces,
    )
    found = zip(
        result["latency"].values, result["first_pace"].values, result["second_pace"].values, strict=True
    )
    assert {(law, a if law == "first" else b) for law, a, b in found} == set(
        itertools.chain((("first", p) for p in (1.0, 2.0)), (("second", p) for p in (0.5, 4.0)))
    )


@pytest.mark.slow
def test_a_search_ranges_over_such_names(files):
    pytest.importorskip("optuna")
    found = pausejax.search(
        "random",
        trials=4,
        metric="mean_latency",
        fresh_seeds=1,
        use=files,
        **BOTH,
        **{"first.pace": {"uniform": [1.0, 2.0]}, "second.pace": {"uniform": [0.1, 0.2]}},
    )
    assert {"first_pace", "second_pace"} <= {name for trial in found.trials for name in trial.setting.values}


@dataclasses.dataclass(frozen=True)
class Speed:
    pace: float = 1.0
    width: int = 2


def test_a_field_of_a_dataclass_has_its_name_too():
    def law(*, num_clients: int, speed: Speed = Speed(), width_of: float = 0.5):
        return num_clients, speed, width_of

    part = read("latency", law).with_own({"pace", "width_of", "absent"})
    assert part.reads == {"num_clients", "law_pace", "width", "law_width_of"}
    built = part.build(num_clients=4, law_pace=3.0, width=5, law_width_of=0.25, pace=9.0)
    assert built == (4, Speed(3.0, 5), 0.25)


def test_a_name_of_its_own_that_is_taken_is_refused(tmp_path):
    code = LAW.format(name="first", pace=1.0, width=2, factor=1.0).replace(
        "width: int = 2", "width: int = 2, first_width: int = 0"
    )
    other = LAW.format(name="second", pace=1.0, width=5, factor=1.0)
    for name, text in (("first", code), ("second", other)):
        (tmp_path / f"{name}.py").write_text(text)
    both = [str(tmp_path / f"{name}.py") for name in ("first", "second")]
    with pytest.raises(SpecError, match="width: another part has this parameter too"):
        kinds.parse(document(both, ["first", "second"]))


def test_a_label_names_no_part(files):
    labelled = document(files, ["first"])
    labelled["policy"] = [{"name": "random", "label": "second"}]
    plain = document(files, ["first"])
    plain["policy"] = [{"name": "random"}]
    one, other = (make_plan(kinds.parse(spec)).runs for spec in (labelled, plain))
    assert [run.identity for run in one] == [run.identity for run in other]


POLICY = """
import pausejax

@pausejax.policy
def {name}(*, width: int = {width}): ...
"""


def test_a_run_keeps_its_identity_when_a_policy_with_an_equal_name_of_a_parameter_joins(tmp_path):
    code = "".join(POLICY.format(name=name, width=width) for name, width in (("one", 2), ("two", 5)))
    (tmp_path / "both.py").write_text(code)

    def identities(*policies):
        study = kinds.parse({"mode": "bandit", "use": [str(tmp_path / "both.py")], "policy": list(policies)})
        return {(run.policy, run.identity) for run in make_plan(study).runs}

    one, two = {"name": "one", "width": 3}, {"name": "two", "width": 3}
    together = identities({"name": "one", "one.width": 3}, {"name": "two", "two.width": 3})
    assert together == identities(one) | identities(two) and len(together) == 2
    assert identities({"name": "one", "one.width": 3}) == identities({"name": "one", "one_width": 3})
    assert identities({"name": "one", "one.width": 3}) == identities(one)


def test_a_run_of_two_parts_with_equal_names_of_parameters_has_an_identity_for_each_value(files):
    """The widths 2 and 5 of policy and law differ from 5 and 2."""
    policy = POLICY.format(name="mine", width=2)
    with open(files[0], "a") as file:
        file.write(policy)

    def identity(mine, first):
        spec = document(files[:1], "first", **{"first.width": first})
        spec["policy"] = [{"name": "mine", "mine.width": mine}]
        (run,) = make_plan(kinds.parse(spec)).runs
        return run.identity

    assert len({identity(2, 5), identity(5, 2), identity(2, 2), identity(5, 5)}) == 4
