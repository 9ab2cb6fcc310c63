"""Searches through and through: their runs are a plain sweep's, and a killed one ends as it would have."""

import contextlib
import warnings

import jax
import jax.numpy as jnp
import numpy as np
import optuna
import pytest

import pausejax
from pausejax import kinds
from pausejax.data.host import DataCache
from pausejax.execution import rounds
from pausejax.execution.local import LocalExecutor
from pausejax.execution.play import play_in_memory
from pausejax.execution.program import GroupProgram
from pausejax.execution.tracking import Tracker
from pausejax.policies import cohort, memoryless
from pausejax.results.folder import Folder
from pausejax.results.sealed import write_sealed
from pausejax.results.stores import FolderStore, MemoryStore
from pausejax.searches import confirm, search_file
from pausejax.searches import search as search_module
from pausejax.searches.goal import goal_of
from pausejax.searches.options import SearchOptions
from pausejax.searches.result import summary
from pausejax.searches.sampler import Sampler
from pausejax.searches.search import search
from pausejax.searches.space import space_of
from pausejax.study.plan import plan_of
from pausejax.study.spec import SpecError

BANDIT = {
    "mode": "bandit",
    "rounds": 75,
    "seeds": 2,
    "network": {"num_clients": 8, "clients_per_round": 2},
    "reward": {"generalization_weight": {"log_uniform": [1, 1000]}, "privacy_weight": [1.0, 5.0, 25.0]},
    "policy": [{"name": "pause"}],
}
TWO = {**BANDIT, "policy": [{"name": "pause"}, {"name": "sa_pause", "annealing_steps": 20}]}
TRAINING = {
    "rounds": 30,
    "eval_every": 5,
    "seeds": 2,
    "network": {"num_clients": 6, "clients_per_round": 2},
    "data": {"train_samples": 120},
    "training": {"model": "linear", "learning_rate": {"log_uniform": [0.001, 1.0]}, "max_steps": 2},
    "policy": [{"name": "pause"}, {"name": "sa_pause", "annealing_steps": 20}],
}
REGRET = SearchOptions(trials=24, metrics=("cumulative_pseudo_regret",), max_width=12)


BALANCE = REGRET._replace(metrics=("participation_imbalance",))


def play(document, options, folder=None, on_step=None, **limits):
    study, store = kinds.parse(document, searched=True), FolderStore(folder) if folder else MemoryStore()
    executor = LocalExecutor(DataCache(), max_width=options.max_width, **limits)
    with contextlib.closing(executor):
        return search(study, options, executor, store, progress=lambda _: on_step and on_step())


@pytest.fixture(scope="module")
def regret():
    return play(BANDIT, REGRET)


@pytest.mark.parametrize("at_latency", [None, 12.5])
@pytest.mark.slow
def test_a_run_of_a_search_is_that_of_a_plain_sweep_bit_for_bit(at_latency):
    """Whoever its neighbours were, and whichever round they were in."""
    played = play(BANDIT, BALANCE._replace(at_latency=at_latency))
    plain = play_in_memory(plan_of(played.study, played.plan.runs), LocalExecutor(DataCache()))
    if at_latency:
        assert len({trial.rounds for trial in played.trials}) > 1, "all came to the time at once"
    for name, variable in plain.data_vars.items():
        np.testing.assert_array_equal(played.result[name].values, variable.values, err_msg=name)


@pytest.mark.slow
def test_a_run_of_a_search_that_learns_is_that_of_a_plain_sweep():
    played = play(TRAINING, SearchOptions(trials=12, max_width=8))
    plain = play_in_memory(plan_of(played.study, played.plan.runs), LocalExecutor(DataCache()))
    assert {run.policy for run in played.plan.runs} == {"pause", "sa_pause"}
    np.testing.assert_array_equal(played.result["selected"], plain["selected"])
    np.testing.assert_allclose(played.result["train_loss"], plain["train_loss"], rtol=1e-4)
    np.testing.assert_allclose(played.result["test_accuracy"], plain["test_accuracy"], atol=0.01)


def test_figures_are_those_of_the_runs(regret):
    """What decided is what the result says."""
    total = regret.result["pseudo_regret"].values.astype(np.float64).sum(axis=1).reshape(-1, 2)
    shown = [-trial.score.values[0] for trial in regret.trials]
    np.testing.assert_allclose(shown, total.mean(axis=1), rtol=1e-5)


def test_as_many_settings_are_tried_as_are_asked_for(regret):
    assert len({trial.setting.key for trial in regret.trials}) == len(regret.trials) == REGRET.trials
    assert [trial.rounds for trial in regret.trials] == [2 * 75] * 24


def test_the_best_is_the_best_of_all(regret):
    assert regret.ranked(1)[0].score == max(trial.score for trial in regret.trials)


def test_a_search_ends_when_there_is_nothing_else_to_try():
    document = {**BANDIT, "reward": {"privacy_weight": [1.0, 5.0, 25.0]}}
    assert len(play(document, REGRET._replace(sampler="random")).trials) == 3


@pytest.mark.slow
def test_each_program_is_compiled_for_one_width(monkeypatch):
    """Of two programs the sampler may ask for one more often."""
    widths, lower = [], GroupProgram.lower

    def watch(self, width):
        widths.append((self.group.algorithm, width))
        return lower(self, width)

    monkeypatch.setattr(GroupProgram, "lower", watch)
    played = play(TWO, REGRET._replace(trials=100, max_width=64))
    assert {trial.setting.policy for trial in played.trials} == {"pause", "sa_pause"}
    assert sorted(widths) == [("pause", 6), ("sa_pause", 6)] and len(played.trials) == 100


class Kill(Exception):
    pass


@pytest.mark.parametrize(
    ("document", "options"),
    [
        (BANDIT, REGRET),
        pytest.param(BANDIT, BALANCE._replace(at_latency=12.5, sampler="random"), marks=pytest.mark.slow),
        pytest.param(
            TWO,
            REGRET._replace(trials=80, max_width=64, constraints=("max_leakage<=60",)),
            marks=pytest.mark.slow,
        ),
        pytest.param(
            TRAINING,
            SearchOptions(trials=12, max_width=8, constraints=("max_leakage<=60",)),
            marks=pytest.mark.slow,
        ),
    ],
)
def test_a_killed_search_makes_the_same_choices(document, options, tmp_path):
    whole = play(document, options, Folder(tmp_path / "whole"))
    rng, farthest, steps, kills = np.random.default_rng(0), 0, 0, 0

    def killed():
        nonlocal farthest, steps, kills
        steps += 1
        if steps > farthest:
            farthest = steps
            if rng.random() < 0.3:
                kills += 1
                raise Kill

    for _ in range(60):
        steps = 0
        try:
            again = play(document, options, Folder(tmp_path / "again"), on_step=killed)
            break
        except Kill:
            pass
    else:
        pytest.fail("never came to its end")
    assert kills > 0
    assert_the_same(whole, again, tmp_path)


def assert_same_trials(one, other):
    for a, b in zip(one.trials, other.trials, strict=True):
        assert (a.number, a.setting, a.score, a.rounds) == (b.number, b.setting, b.score, b.rounds)
        np.testing.assert_array_equal(a.figures, b.figures)


def assert_the_same(whole, again, folder):
    """Two searches chose, saw and left the same, byte for byte: in `whole` and in `again`."""
    assert_same_trials(whole, again)
    a, b = ((folder / name / "results.zarr") for name in ("whole", "again"))
    files = sorted(path.relative_to(a) for path in a.rglob("*") if path.is_file())
    assert files == sorted(path.relative_to(b) for path in b.rglob("*") if path.is_file())
    for file in files:
        assert (a / file).read_bytes() == (b / file).read_bytes(), file
    ours, others = (trials_of_optuna(folder / name) for name in ("whole", "again"))
    assert [(t.params, t.values, t.state) for t in ours] == [(t.params, t.values, t.state) for t in others]


def trials_of_optuna(folder):
    """What another program reads of the study of Optuna."""
    backend = optuna.storages.journal.JournalFileBackend(str(folder / "optuna.log"))
    storage = optuna.storages.JournalStorage(backend)
    return optuna.load_study(study_name="search", storage=storage).trials


@pytest.mark.slow
def test_the_study_of_optuna_says_what_the_search_has_seen(tmp_path):
    options = REGRET._replace(trials=6, metrics=("cumulative_pseudo_regret", "cumulative_reward"))
    played = play(TWO, options._replace(constraints=("max_leakage<=20",)), Folder(tmp_path))
    trials = {trial.number: trial for trial in trials_of_optuna(tmp_path)}
    assert len(trials) == 6
    for trial in played.trials:
        copied = trials[trial.number]
        np.testing.assert_array_equal(copied.values, trial.figures.mean(axis=0)[:2])
        assert copied.params["policy"] == trial.setting.policy
        assert float(copied.params["privacy_weight"]) == trial.setting.values["privacy_weight"]
        alpha = copied.params["generalization_weight"]
        assert alpha == pytest.approx(trial.setting.values["generalization_weight"], rel=1e-5)
        assert copied.system_attrs["constraints"] == pytest.approx([trial.score.violation])


def test_a_time_that_the_rounds_do_not_reach_is_said():
    played = play(BANDIT, BALANCE._replace(trials=6, at_latency=500.0))
    assert summary(played).endswith("settings: the last of 75 rounds ended before 500 simulated seconds")
    assert all(trial.short for trial in played.trials)


@pytest.mark.parametrize(("deadline", "seconds", "rounds"), [(0.7, 6.3, 9), (0.1, 0.9, 9), (0.3, 3.0, 10)])
def test_the_rounds_up_to_a_decimal_time_count(deadline, seconds, rounds):
    """Durations are rounded to float32, so their sum may lie on either side of the time."""
    slow = {"min_latency": 0.95, "fast_latency": 1.0, "slow_latency": 1.5}
    document = {
        **BANDIT,
        "rounds": 30,
        "network": {**BANDIT["network"], **slow, "ending": "deadline", "round_deadline": deadline},
        "policy": [{"name": "random"}],
        "reward": {"privacy_weight": [1.0, 5.0]},
    }
    played = play(document, BALANCE._replace(metrics=("max_leakage",), at_latency=seconds, trials=2))
    for trial in played.trials:
        assert trial.rounds == 2 * rounds and not trial.short


def test_lists_that_are_zipped_go_together():
    document = {
        **BANDIT,
        "zip": [["alpha", "gamma"]],
        "reward": {"generalization_weight": [1.0, 10.0, 100.0], "privacy_weight": [2.0, 20.0, 200.0]},
    }
    played = play(document, REGRET._replace(sampler="random"))
    assert len(played.trials) == 3
    for trial in played.trials:
        assert trial.setting.values["privacy_weight"] == 2 * trial.setting.values["generalization_weight"]


def test_a_policy_may_fix_one_of_several_zipped_parameters():
    """Its other parameters have rows of their own, so the sampler gives them another name."""
    document = {
        **BANDIT,
        "zip": [["alpha", "gamma", "privacy_budget"]],
        "reward": {"alpha": [1.0, 10.0], "gamma": [2.0, 20.0]},
        "privacy": {"privacy_budget": [20.0, 40.0]},
        "policy": [{"name": "pause"}, {"name": "pause", "label": "fixed", "privacy_budget": 80.0}],
    }
    played = play(document, REGRET._replace(sampler="random"))
    names = ("generalization_weight", "privacy_weight", "privacy_budget")
    found = {tuple(trial.setting.values[name] for name in names) for trial in played.trials}
    assert found == {(1.0, 2.0, 20.0), (10.0, 20.0, 40.0), (1.0, 2.0, 80.0), (10.0, 20.0, 80.0)}


def test_several_objectives_leave_a_front():
    metrics = ("cumulative_pseudo_regret", "max_leakage")
    played = play(BANDIT, REGRET._replace(metrics=metrics, sampler="nsga2"))
    values = np.array([trial.score.values for trial in played.ranked(50)])
    front = [not any((other >= own).all() and (other > own).any() for other in values) for own in values]
    assert front == sorted(front, reverse=True), "somebody who is beaten comes before somebody who is not"


def test_the_finalists_are_the_front_of_the_settings_that_keep_the_constraints():
    metrics = ("mean_latency", "cumulative_reward")
    asked = REGRET._replace(metrics=metrics, sampler="random", trials=40)
    free = play(BANDIT, asked._replace(constraints=("max_leakage<=1e9",)))
    bound = float(np.median([trial.figures[:, 2].mean() for trial in free.trials]))
    played = play(BANDIT, asked._replace(constraints=(f"max_leakage<={bound!r}",)))
    kept = [trial for trial in played.trials if trial.figures[:, 2].mean() <= bound]
    assert 0 < len(kept) < 40
    points = np.array([trial.figures[:, :2].mean(axis=0) * [-1, 1] for trial in kept])
    front = [not any((other >= own).all() and (other > own).any() for other in points) for own in points]
    expected = {trial.setting.key for trial, on in zip(kept, front, strict=True) if on}
    found = [setting.key for label, setting in confirm.finalists(played).items() if label != "default"]
    assert len(found) == min(len(expected), 6) and set(found) <= expected


def test_constraints_are_kept_by_the_best():
    played = play(BANDIT, REGRET._replace(constraints=("mean_latency>=0.2",)))
    best = played.ranked(1)[0]
    latency = played.result["elapsed"].values[2 * best.number : 2 * best.number + 2, -1] / 75
    kept = [trial for trial in played.trials if trial.score.violation == 0]
    assert latency.mean() >= 0.2 or not kept
    assert ("no setting keeps" in summary(played)) == (not kept)


def test_constraints_that_nobody_keeps_are_said():
    played = play(BANDIT, REGRET._replace(constraints=("max_leakage<=0.001",), trials=6))
    assert summary(played).endswith("no setting keeps the constraints")


@pytest.mark.parametrize("changed", [{"trials": 4}, {"metrics": ("max_leakage",)}])
def test_a_search_that_begins_beside_another_does_not_share_its_folder(tmp_path, monkeypatch, changed):
    first = play(BANDIT, REGRET._replace(trials=3), Folder(tmp_path))
    before = Folder(tmp_path).read("trials.json")
    # This process looked into the folder before the other one wrote its file.
    monkeypatch.setattr(search_file, "read", lambda folder, wanted: None)
    with pytest.raises(SpecError, match=f"another search, which differs in {next(iter(changed))}"):
        play(BANDIT, REGRET._replace(**{"trials": 3, **changed}), Folder(tmp_path))
    assert Folder(tmp_path).read("trials.json") == before
    assert play(BANDIT, REGRET._replace(trials=3), Folder(tmp_path)).rows == first.rows


def test_other_searches_and_studies_keep_their_folders(tmp_path):
    play(BANDIT, REGRET._replace(trials=3), Folder(tmp_path / "a"))
    with pytest.raises(SpecError, match=r"another search, which differs in trials \(3, now 4\)"):
        play(BANDIT, REGRET._replace(trials=4), Folder(tmp_path / "a"))
    with pytest.raises(SpecError, match="another search, which differs in the spec"):
        play({**BANDIT, "seeds": 1}, REGRET._replace(trials=3), Folder(tmp_path / "a"))
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "spec.toml").write_text("")
    with pytest.raises(SpecError, match=r"no search has begun here, and .* spec\.toml"):
        play(BANDIT, REGRET, Folder(tmp_path / "b"))


@pytest.mark.slow
def test_a_search_at_its_end_is_not_played_again_unless_its_result_is_damaged(tmp_path, monkeypatch):
    asked = REGRET._replace(trials=6)
    whole = play(BANDIT, asked, Folder(tmp_path))
    with monkeypatch.context() as patched:
        patched.setattr(rounds, "play_rounds", None)
        again = play(BANDIT, asked, Folder(tmp_path))
    assert_same_trials(whole, again)
    chunk = next(path for path in (tmp_path / "results.zarr" / "reward" / "c").rglob("*") if path.is_file())
    before = chunk.read_bytes()
    chunk.write_bytes(before[:-1])
    play(BANDIT, asked, Folder(tmp_path))
    assert chunk.read_bytes() == before


@pytest.mark.slow
def test_defaults_that_do_not_fit_are_no_finalists():
    """Of as few clients as this searches, the default cohort of five could not be chosen."""
    document = {
        **BANDIT,
        "network": {"num_clients": 4, "clients_per_round": [2, 3]},
        "reward": {"generalization_weight": 10.0},
    }
    played = play(document, REGRET._replace(trials=2, metrics=("mean_latency",)))
    labels = [policy.label for policy in confirm.confirmation(played, 2).policies]
    assert labels[0] == "best" and "default" not in labels
    assert "default" in confirm.finalists(played)
    executor = LocalExecutor(DataCache())
    with contextlib.closing(executor):
        confirmed = confirm.confirm(played, 2, executor, MemoryStore())
    assert "the defaults are not compared" in summary(confirmed)


def test_a_search_that_can_not_begin_leaves_its_folder_free(tmp_path):
    def asked(num_clients):
        return {**TRAINING, "network": {**TRAINING["network"], "num_clients": num_clients}}

    with pytest.raises(SpecError, match="training samples"):
        play(asked(119), REGRET._replace(metrics=("mean_latency",)), Folder(tmp_path))
    for num_clients in (118, 119):
        with pytest.raises(SpecError, match=f"{num_clients} clients"):
            play(asked(num_clients), REGRET._replace(metrics=("mean_latency",)), Folder(tmp_path))


@pytest.mark.slow
def test_defaults_that_do_not_fit_the_data_are_no_finalists():
    """The default minibatch of 20 samples is larger than the clients' shares of the data."""
    found = pausejax.search(
        "random",
        trials=2,
        metric="mean_latency",
        rounds=2,
        eval_every=2,
        seeds=1,
        fresh_seeds=2,
        dataset="digits",
        train_samples=200,
        num_clients=15,
        batch_size=[4, 8],
    )
    assert [one.label for one in found.finalists] == ["best", "second"]
    assert "the defaults are not compared" in repr(found)


@pytest.mark.slow
@pytest.mark.parametrize("chance", [1.0, 0.3])
@pytest.mark.parametrize("in_memory", [True, False])
def test_defaults_that_fail_in_their_rounds_are_no_finalists(own_parts, tmp_path, chance, in_memory):
    """In the first run, or in a later one, when other runs of the defaults have ended."""

    @pausejax.policy
    def strided(*, num_clients, clients_per_round, stride: float = 0.0):
        """Selects one client twice at its default, by chance."""

        def select(key, state, view):
            step = jnp.where((stride > 0) | ~jax.random.bernoulli(key, chance), 1, 0)
            return cohort(jnp.arange(clients_per_round, dtype=jnp.int32) * step, state.data_share)

        return memoryless(select)

    spec = {**BANDIT, "rounds": 1, "policy": [{"name": "strided", "stride": {"uniform": [1, 3]}}]}
    del spec["reward"]
    played = play(spec, BALANCE._replace(trials=3))
    folder = Folder(tmp_path)
    for _ in range(2):
        store = MemoryStore() if in_memory else FolderStore(folder)
        with contextlib.closing(LocalExecutor(DataCache(), max_width=1)) as executor:
            found = confirm.confirm(played, 8, executor, store)
        assert [one.label for one in found.finalists] == ["best", "second"]
        assert "the defaults are not compared" in repr(found)
        assert found.confirmation.sizes["run"] == 16
    if not in_memory:
        with warnings.catch_warnings(action="error"):
            assert pausejax.open(tmp_path).sizes["run"] == 16
        assert not folder.names("parts")


def test_a_search_that_was_killed_before_it_wrote_its_spec_goes_on(tmp_path):
    """It writes layouts first."""
    write_sealed(Folder(tmp_path), "layout.json", {})
    assert len(play(BANDIT, REGRET._replace(trials=2), Folder(tmp_path)).trials) == 2


def test_no_suggestion_is_rounded_beyond_an_end_of_its_range():
    """As in a sweep: 1.0 would not be allowed."""
    ends = {"uniform": [1.0000001, 2.9999999]}
    document = {**BANDIT, "reward": {}, "policy": [{"name": "pause", "beta": ends}]}
    space = space_of(kinds.parse(document, searched=True))
    for end, exact in (("low", 1.0000001), ("high", 2.9999999)):
        found = space.setting(lambda key, given, end=end: getattr(given, end))
        assert found.values["generalization_exponent"] == exact
    assert space.setting(lambda key, given: 1.23456789).values["generalization_exponent"] == 1.23457


@pytest.mark.slow
def test_known_suggestions_end_no_search():
    """TPE suggests a policy with one setting for ever, and known points of lists."""
    kappa = {"temperature_divisor": {"log_uniform": [1, 100]}}
    policies = [{"name": "sa_pause", "annealing_steps": 20, **kappa}, {"name": "random"}, {"name": "fastest"}]
    fixed = {**BANDIT, "rounds": 20, "seeds": 1}
    del fixed["reward"]
    found = play({**fixed, "policy": policies}, BALANCE._replace(trials=40))
    assert len(found.trials) == 40 and "40 settings;" in summary(found)
    study = kinds.parse({**fixed, "reward": {"privacy_weight": [*range(1, 51)]}}, searched=True)
    asked = BALANCE._replace(trials=50, sampler="random")
    sampler = Sampler(space_of(study), goal_of(study, asked), asked)
    steps = search_module._Steps(space_of(study), sampler, 50, 1, 1)
    assert len([*iter(steps.next, [])]) == 50
    lists = {"generalization_weight": [1.0, 2.0, 4.0, 8.0], "privacy_weight": [1.0, 5.0, 25.0]}
    for trials, said in (
        (12, "12 settings;"),
        (13, "12 of 13 settings, because the sampler found"),
    ):
        found = play({**fixed, "reward": lists}, BALANCE._replace(trials=trials))
        assert len({trial.setting.key for trial in found.trials}) == 12 and said in summary(found)


@pytest.mark.parametrize("in_memory", [True, False])
def test_policies_that_reach_the_same_values_share_runs(in_memory, tmp_path):
    tables = [{"name": "pause", "label": label} for label in "ab"]
    weights = {"generalization_weight": [1.0, 1000.0]}
    asked = REGRET._replace(trials=4, metrics=("mean_latency",))
    found = play(
        {**BANDIT, "policy": tables, "reward": weights}, asked, None if in_memory else Folder(tmp_path)
    )
    result = found.result if in_memory else pausejax.open(tmp_path)
    halves = [result.isel(run=result["policy"].values == label).sortby("identity") for label in "ab"]
    assert halves[0].sizes["run"] == 4
    for name, values in halves[0].data_vars.items():
        np.testing.assert_array_equal(values, halves[1][name])


def test_a_tracker_is_told_of_shared_runs_in_memory():
    """Those of unlike numbers of clients too, which have arrays of unlike shapes."""

    class Counting(Tracker):
        def runs_finished(self, result):
            told.extend(
                zip(result["policy"].values.tolist(), result["identity"].values.tolist(), strict=True)
            )

    told = []
    tables = [{"name": "random", "label": label, "num_clients": [6, 8]} for label in "ab"]
    study = kinds.parse({**BANDIT, "rounds": 5, "policy": tables, "reward": {}}, searched=True)
    with contextlib.closing(LocalExecutor(DataCache())) as executor:
        found = search(study, BALANCE._replace(trials=4), executor, MemoryStore(), tracker=Counting())
    runs = zip(found.result["policy"].values.tolist(), found.result["identity"].values.tolist(), strict=True)
    assert sorted(told) == sorted(runs) and len(told) == 8


def test_a_metric_whose_scale_the_search_chooses_is_said(regret):
    assert "cumulative_pseudo_regret is not comparable between settings with different α, γ" in summary(
        regret
    )
    latency = play(BANDIT, REGRET._replace(trials=2, metrics=("mean_latency",)))
    assert "not comparable" not in summary(latency)


@pytest.mark.slow
def test_a_search_is_of_the_files_that_it_read(tmp_path):
    """A file that changes while a search waits, is resumed or plays; its confirmation too."""
    own, trace = tmp_path / "own.py", tmp_path / "latencies.csv"

    def write(seconds, count=1):
        np.savetxt(trace, np.full((4, 8), seconds), delimiter=",")
        text = "import pausejax\n\n\n@pausejax.quantity(reduce='last', units='1')\ndef one(seen):\n"
        own.write_text(f"{text}    'counts'\n    return 0.0 * seen.latency.max() + {count}.0\n")

    def parsed():
        spec = {"use": ["own.py"], "quantities": ["one"], **BANDIT, "rounds": 20}
        spec["network"] = {**BANDIT["network"], "latency": "trace", "trace_file": "latencies.csv"}
        return kinds.parse(spec, searched=True, folder=tmp_path)

    def again(study, on_step=None, folder=None):
        store = FolderStore(Folder(folder)) if folder else MemoryStore()
        with contextlib.closing(LocalExecutor(DataCache(), max_width=12)) as executor:
            found = search(study, REGRET, executor, store, progress=lambda _: on_step and on_step())
            return confirm.confirm(found, 2, executor, MemoryStore())

    def kill():
        raise Kill

    write(1.0)
    expected = again(parsed())
    with pytest.raises(Kill):
        again(parsed(), kill, tmp_path / "out")
    for folder in (None, tmp_path / "out"):
        write(1.0)
        study = parsed()
        write(2.0)
        with pytest.raises(SpecError, match=r"latencies\.csv: changed after the command had read it"):
            again(study, folder=folder)
    write(1.0)
    with pytest.raises(SpecError, match=r"latencies\.csv: changed after the command had read it"):
        again(parsed(), lambda: write(2.0))
    write(1.0)
    edited = again(parsed(), lambda: write(1.0, count=5))
    for name, values in expected.confirmation.data_vars.items():
        np.testing.assert_array_equal(edited.confirmation[name], values)
    assert (edited.confirmation["one"] == 1).all()


@pytest.mark.slow
def test_a_resumed_search_makes_every_program_before_it_plays(tmp_path):
    """So that a cluster's workers get all data, and a program that can't be built ends it at once."""

    class Recorder(LocalExecutor):
        def layouts(self, plan, *more):
            made.append(len(plan.groups))
            return super().layouts(plan, *more)

    def step():
        raise Kill

    made, asked = [], REGRET._replace(trials=12)
    with pytest.raises(Kill):
        play(TWO, asked, Folder(tmp_path), on_step=step)
    with contextlib.closing(Recorder(DataCache(), max_width=asked.max_width)) as executor:
        search(kinds.parse(TWO, searched=True), asked, executor, FolderStore(Folder(tmp_path)))
    assert made == [2]
