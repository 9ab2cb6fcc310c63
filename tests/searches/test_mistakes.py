"""What a search refuses: every option and its combinations with a spec, in one line, before any compute."""

import math
import sys

import pytest

import pausejax
from pausejax import kinds
from pausejax.commands.main import main
from pausejax.data.host import DataCache
from pausejax.execution.local import LocalExecutor
from pausejax.results.folder import Folder
from pausejax.results.stores import FolderStore, MemoryStore
from pausejax.searches.options import SearchOptions, check_fresh
from pausejax.searches.search import search
from pausejax.study.spec import SpecError

BANDIT = {
    "mode": "bandit",
    "rounds": 75,
    "seeds": 2,
    "network": {"num_clients": 8, "clients_per_round": 2},
    "reward": {"generalization_weight": {"log_uniform": [1, 1000]}, "privacy_weight": [1.0, 5.0, 25.0]},
    "policy": [{"name": "pause"}],
}
LISTS = {**BANDIT, "reward": {"privacy_weight": [1.0, 5.0, 25.0]}}
TRAINING = {**BANDIT, "mode": "training", "eval_every": 4, "rounds": 30}
ENSEMBLE = {"mode": "ensemble", "rounds": 20, "policy": [{"name": "efl_fg"}, {"name": "fedboost"}]}
REGRET = SearchOptions(metrics=("cumulative_pseudo_regret",))
TWO = ("max_leakage", "mean_latency")
A_PROGRAM_EACH = {"name": "sa_pause", "annealing_steps": {"int_uniform": [5, 50]}}
MANY_PROGRAMS = {"name": "sa_pause", "annealing_steps": list(range(1, 66))}

BAD = [
    # the metric
    ({}, {"metrics": ("test_accuracy",)}, 'with mode = "bandit", must be one of'),
    ({}, {"metrics": ("cumulative_pseudo_regrt",)}, "did you mean 'cumulative_pseudo_regret'"),
    (
        {},
        {"metrics": ("rounds_played",)},
        "neither more nor less is better by definition. Give --maximize or --minimize",
    ),
    (
        {},
        {"metrics": ("rounds_played", "max_leakage")},
        "neither more nor less is better by definition. Leave it out of the front",
    ),
    ({}, {"metrics": ("max_leakage", "max_leakage")}, "must name each metric once"),
    ({}, {"metrics": (3,)}, "--metric (3,): must be strings"),
    ({}, {"metrics": TWO, "maximize": True}, "--maximize: allowed only with one metric"),
    ({}, {"maximize": "up"}, "--maximize 'up': must be true, false"),
    # how many
    ({}, {"trials": 0}, "--trials 0: must be an integer from 1 to 1,000,000"),
    ({}, {"trials": 10**7}, "--trials 10000000: must be"),
    ({}, {"trials": math.nan}, "--trials nan: must be"),
    ({}, {"trials": 1e4}, "--trials 10000.0: must be"),
    ({}, {"trials": "64"}, "--trials '64': must be"),
    # where settings are compared
    ({}, {"at_round": 80}, "must be at most rounds = 75"),
    ({}, {"at_round": 0}, "--at-round 0: must be an integer >= 1"),
    ({}, {"at_round": 10.5}, "--at-round 10.5: must be an integer >= 1"),
    ({}, {"at_round": 10, "at_latency": 1.0}, "give only one of them"),
    ({}, {"at_latency": 0.0}, "--at-latency 0.0: must be from 1e-06"),
    ({}, {"at_latency": -1.0}, "--at-latency -1.0: must be"),
    ({}, {"at_latency": math.nan}, "--at-latency nan: must be"),
    ({}, {"at_latency": 1e-300}, "--at-latency 1e-300: must be"),
    ({}, {"at_latency": "soon"}, "--at-latency 'soon': must be"),
    ({}, {"at_latency": 12.5}, "--metric cumulative_pseudo_regret: is a sum over rounds"),
    ({"stop_at_latency": 3.0}, {}, "not allowed in a search. Use --at-latency"),
    (TRAINING, {"metrics": ()}, "eval_every = 4: must divide 30, the largest number of rounds"),
    (
        TRAINING,
        {"metrics": (), "at_round": 10},
        "eval_every = 4: must divide 10, the largest number of rounds",
    ),
    # constraints
    ({}, {"constraints": ("max_leakage<50",)}, "must be METRIC<=NUMBER"),
    ({}, {"constraints": ("max_leakage<=",)}, "must be METRIC<=NUMBER"),
    ({}, {"constraints": ("max_leakage<=1e",)}, "must be METRIC<=NUMBER"),
    ({}, {"constraints": ("max_leakage<=1e999",)}, "must be METRIC<=NUMBER"),
    ({}, {"constraints": ("max_leakge<=50",)}, "did you mean 'max_leakage'"),
    ({}, {"constraints": (50,)}, "--constraint (50,): must be strings"),
    ({}, {"constraints": ("max_leakage<=50", "max_leakage>=60")}, "no value is >= 60 and <= 50"),
    ({}, {"constraints": ("max_leakage<=5",), "sampler": "cmaes"}, "one range"),
    # samplers
    ({}, {"sampler": "tpee"}, "must be one of tpe"),
    ({}, {"sampler": None}, "--sampler None: must be one of tpe"),
    ({}, {"sampler": "sobol"}, "must be one of tpe, cmaes, nsga2, random"),
    ({}, {"sampler": "cmaes", "metrics": TWO}, "allows only one metric. The samplers tpe"),
    (LISTS, {"sampler": "cmaes"}, "needs two ranges, but the spec has no range"),
    ({"policy": [{"name": "pause"}, {"name": "random"}]}, {"sampler": "cmaes"}, "allows only one policy"),
    ({}, {"sampler_seed": -1}, "--sampler-seed -1: must be an integer from 0"),
    ({}, {"sampler_seed": True}, "--sampler-seed True: must be"),
    # the spec
    ({"reward": {}}, {}, "nothing to search"),
    ({"reward": {"privacy_weight": [5.0]}}, {}, "nothing to search"),
    ({"policy": [A_PROGRAM_EACH]}, {}, "must be a list of values, not a range"),
    ({"policy": [MANY_PROGRAMS]}, {}, "make 65 programs; must be <= 64"),
]


@pytest.mark.parametrize(("change", "options", "said"), BAD)
def test_mistakes_are_said_in_one_line_before_anything_is_played(change, options, said, tmp_path):
    study = kinds.parse({**BANDIT, **change}, searched=True)
    with pytest.raises(SpecError) as caught:
        search(
            study,
            REGRET._replace(**options),
            LocalExecutor(DataCache()),
            FolderStore(Folder(tmp_path / "out")),
        )
    assert len(caught.value.problems) == 1
    assert said in str(caught.value)
    assert not (tmp_path / "out").exists() or not list((tmp_path / "out").iterdir())


def test_every_mistake_of_the_options_has_a_line(tmp_path):
    asked = REGRET._replace(trials=0, sampler="tpee", at_latency=0.0)
    with pytest.raises(SpecError) as caught:
        search(kinds.parse(BANDIT, searched=True), asked, LocalExecutor(DataCache()), MemoryStore())
    assert [line.split()[0] for line in caught.value.problems] == ["--trials", "--at-latency", "--sampler"]


def test_ensembles_are_refused_before_the_folder_is_taken(tmp_path):
    study = kinds.parse(ENSEMBLE, searched=True)
    with pytest.raises(SpecError, match="a search needs a study of client selection"):
        search(study, SearchOptions(), LocalExecutor(DataCache()), FolderStore(Folder(tmp_path / "out")))
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("seeds", "fresh", "said"),
    [
        (2, 0, "must be an integer from 1"),
        (2, 2**20 + 1, "must be an integer from 1"),
        (2, math.nan, "must be an integer from 1"),
        ([2**32 - 3], 3, "the largest seed is 4294967295 and the spec uses 4294967293"),
    ],
)
def test_fresh_seeds_are_there(seeds, fresh, said):
    with pytest.raises(SpecError, match=said):
        check_fresh(kinds.parse({**BANDIT, "seeds": seeds}, searched=True), fresh)


def test_the_function_says_the_same():
    with pytest.raises(ValueError, match="--trials '64': must be an integer"):
        pausejax.search("pause", trials="64", alpha=[1.0, 10.0])
    with pytest.raises(ValueError, match="--constraint max_leakage<50: must be METRIC<=NUMBER"):
        pausejax.search("pause", alpha=[1.0, 10.0], constraints="max_leakage<50")
    with pytest.raises(ValueError, match="--fresh-seeds 0: must be"):
        pausejax.search("pause", alpha=[1.0, 10.0], fresh_seeds=0)


SPEC = """
mode = "bandit"
rounds = 50
seeds = 2
reward.generalization_weight = { log_uniform = [1, 1000] }
policy = [{ name = "pause" }]
"""

TYPED = [
    (["--trials", "many"], "'many' must be an integer"),
    (["--trials", "0"], "'0' must be an integer"),
    (["--trials", "2k"], "'2k' must be an integer"),
    (["--trials", "9999999"], "--trials 9999999: must be"),
    (["--at-latency", "soon"], "'soon' must be a number"),
    (["--at-latency", "nan"], "--at-latency nan: must be from"),
    (["--at-latency", "inf"], "--at-latency inf: must be from"),
    (["--at-round", "0"], "'0' must be an integer"),
    (["--sampler-seed", "4294967296"], "must be an integer from 0"),
    (["--fresh-seeds", "99999999999"], "--fresh-seeds 99999999999: must be"),
    (["--maximize", "--minimize"], "not allowed with argument --maximize"),
    (["--lanes", "0"], "'0' must be an integer"),
    (["--memory", "nan"], "must be memory in gigabytes"),
    (["--metric", "test_accuracy"], 'with mode = "bandit", must be one of'),
    (["--sampler", "best"], "must be one of tpe"),
    (["--set", "mode=ensemble"], "unknown key"),
    (["--out", ""], "must not be empty"),
]


@pytest.mark.parametrize(("more", "said"), TYPED)
def test_the_command_ends_with_code_2(more, said, tmp_path, capsys):
    (tmp_path / "spec.toml").write_text(SPEC)
    typed = ["search", str(tmp_path / "spec.toml"), "--out", str(tmp_path / "out"), *more]
    try:
        code = main(typed)
    except SystemExit as end:
        code = end.code
    errors = capsys.readouterr().err
    assert code == 2
    assert said in errors and "Traceback" not in errors
    assert not (tmp_path / "out").exists()


def test_folders_of_others_are_left_alone(tmp_path, capsys):
    (tmp_path / "spec.toml").write_text(SPEC)

    def ended(out):
        spec, where = str(tmp_path / "spec.toml"), str(tmp_path / out)
        code = main(["search", spec, "--out", where, "--quiet"])
        return code, capsys.readouterr().err

    (tmp_path / "plain").mkdir()
    (tmp_path / "plain" / "spec.toml").write_text("")
    assert ended("plain") == (
        2,
        f"--out {tmp_path}/plain: no search has begun here, and this one would replace spec.toml. Choose "
        "another folder, or move what is there\n",
    )
    names = ("labels.npz", "files.json", "layout.json", "trials.json", "optuna.log", "search_record.json")
    for name in names:
        folder = tmp_path / f"has {name}"
        folder.mkdir()
        (folder / name).write_text("mine")
        code, said = ended(folder.name)
        assert code == 2 and f"no search has begun here, and this one would replace {name}. " in said
        assert (folder / name).read_text() == "mine"
    (tmp_path / "finished" / "results.zarr").mkdir(parents=True)
    said = f"--out {tmp_path}/finished: holds a study, not a search. Choose another folder\n"
    assert ended("finished") == (2, said)
    for content in ("{}", "[1", "null", '{"content": [], "digest": 3}'):
        (tmp_path / "broken").mkdir(exist_ok=True)
        (tmp_path / "broken" / "search.json").write_text(content)
        assert ended("broken") == (
            2,
            f"--out {tmp_path}/broken: search.json is damaged. Repeat the command that began the search, "
            "or choose another folder\n",
        )
    # A study does not go into the folder of a search either, whose page it would leave as it is.
    for command in ("run", "plan"):
        typed = [command, str(tmp_path / "spec.toml"), "--set", "alpha=5"]
        assert main([*typed, "--out", str(tmp_path / "broken")]) == 2
        assert f"{tmp_path}/broken: holds a search, not a study" in capsys.readouterr().err
    code, said = ended("spec.toml")
    assert code == 1 and said.count("\n") == 1 and "File exists" in said


@pytest.mark.parametrize(
    ("library", "sampler", "said"),
    [("optuna", "tpe", "search: Optuna is not"), ("cmaes", "cmaes", "--sampler cmaes: cmaes is not")],
)
def test_missing_libraries_are_said(library, sampler, said, monkeypatch, tmp_path, capsys):
    monkeypatch.setitem(sys.modules, library, None)
    (tmp_path / "spec.toml").write_text(SPEC)
    typed = ["search", str(tmp_path / "spec.toml"), "--out", str(tmp_path / "out"), "--sampler", sampler]
    assert main(typed) == 2 and said in capsys.readouterr().err
