"""Searches through and through: their runs are a plain sweep's, and a killed one ends as it would have."""

import numpy as np
import pytest

from pausejax import kinds
from pausejax.data.host import Sources
from pausejax.engine import local
from pausejax.results.folder import Folder
from pausejax.searches import confirm
from pausejax.searches.find import search
from pausejax.searches.goal import goal_of
from pausejax.searches.halving import Halving, Shown
from pausejax.searches.lanes import Lanes
from pausejax.searches.options import Options
from pausejax.searches.programs import _cut
from pausejax.searches.table import summary
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
TRAINING = {
    "rounds": 30,
    "eval_every": 5,
    "seeds": 2,
    "network": {"num_clients": 6, "clients_per_round": 2},
    "data": {"train_samples": 120},
    "training": {"model": "linear", "learning_rate": {"log_uniform": [0.001, 1.0]}, "max_steps": 2},
    "policy": [{"name": "pause"}, {"name": "sa_pause", "annealing_steps": 20}],
}
REGRET = Options(budget=6000, metrics=("cumulative_pseudo_regret",), most=12, reduction=3.0)


def found(document, options, folder=None, check=None):
    study = kinds.parse(document, searched=True)

    class Asked:
        def check(self):
            if check:
                check()

    return search(study, options, Sources(), folder, stopping=Asked())


@pytest.fixture(scope="module")
def regret():
    return found(BANDIT, REGRET)


@pytest.mark.slow
def test_a_run_of_a_search_is_that_of_a_plain_sweep_bit_for_bit(regret):
    """Whoever its neighbours were, and whichever round they were in."""
    plain = local.run(plan_of(regret.study, regret.plan.runs), Sources())
    played = {one.number: one.rounds for one in regret.ended}
    rounds = np.repeat([played[number] for number in sorted(played)], 2)
    assert len(set(rounds)) > 1, "nobody was stopped"
    for name, variable in plain.data_vars.items():
        if variable.dims[:2] == ("run", "round"):
            for run, last in enumerate(rounds):
                np.testing.assert_array_equal(
                    regret.result[name].values[run, :last], variable.values[run, :last], err_msg=name
                )
                beyond = regret.result[name].values[run, last:]
                assert np.isnan(beyond).all() if beyond.dtype.kind == "f" else (beyond == -1).all()


@pytest.mark.slow
def test_a_run_of_a_search_that_learns_is_that_of_a_plain_sweep():
    found_ = found(TRAINING, Options(budget=1500, most=8, reduction=3.0))
    plain = local.run(plan_of(found_.study, found_.plan.runs), Sources())
    played = {one.number: one.rounds for one in found_.ended}
    rounds = np.repeat([played[number] for number in sorted(played)], 2)
    assert {run.policy for run in found_.plan.runs} == {"pause", "sa_pause"}
    for run, last in enumerate(rounds):
        np.testing.assert_array_equal(
            found_.result["selected"].values[run, :last], plain["selected"].values[run, :last]
        )
        np.testing.assert_allclose(
            found_.result["train_loss"].values[run, :last], plain["train_loss"].values[run, :last], rtol=1e-4
        )
        evaluated = plain["eval_round"].values <= last
        np.testing.assert_allclose(
            found_.result["test_accuracy"].values[run, evaluated],
            plain["test_accuracy"].values[run, evaluated],
            atol=0.01,
        )


def test_figures_are_those_of_the_runs(regret):
    """What decided is what the result says, at each rung."""
    total = regret.result["pseudo_regret"].values.astype(np.float64)
    for one in regret.ended:
        rows = slice(2 * one.number, 2 * one.number + 2)
        for rung, shown in one.history:
            last = int(regret.goal.rungs[rung])
            np.testing.assert_allclose(-shown.values[0], total[rows, :last].sum(axis=1).mean(), rtol=1e-5)


def test_the_budget_is_kept_and_the_lanes_are_busy(regret):
    assert regret.spent <= REGRET.budget
    assert regret.spent == sum(2 * one.rounds for one in regret.ended)
    assert regret.spent > 0.9 * REGRET.budget
    assert regret.spent / regret.lane_rounds > 0.85
    assert any(one.why == "finished" for one in regret.ended)


TWO = {**BANDIT, "policy": [{"name": "pause"}, {"name": "sa_pause", "annealing_steps": 20}]}


@pytest.mark.parametrize("sampler", ["random", "tpe"])
@pytest.mark.slow
def test_the_lanes_follow_what_the_sampler_asks_for(sampler):
    """Two programs, whichever the sampler prefers."""
    played = found(TWO, REGRET._replace(budget=40_000, most=64, sampler=sampler))
    assert {one.setting.policy for one in played.ended} == {"pause", "sa_pause"}
    assert played.spent / played.lane_rounds > 0.88
    assert 0.95 * 40_000 < played.spent <= 40_000
    assert played.spent == sum(2 * one.rounds for one in played.ended)


def test_lanes_are_cut_for_programs_that_share_them():
    assert _cut(128, 2, 1, shared=False) == (1, 128)
    assert _cut(128, 2, 1, shared=True) == (8, 16)
    assert _cut(128, 2, 3, shared=False) == (8, 16)
    assert _cut(128, 2, 16, shared=False) == (32, 4)
    assert _cut(8, 2, 2, shared=False) == (2, 4)
    assert _cut(1, 1, 5, shared=True) == (1, 1)


def test_the_best_is_the_best_of_those_that_came_to_the_end(regret):
    ends = [one for one in regret.ended if one.why == "finished"]
    assert regret.best(1)[0].history[-1][1] == max(one.history[-1][1] for one in ends)


class Kill(Exception):
    pass


@pytest.mark.parametrize(
    ("document", "options"),
    [
        (BANDIT, REGRET),
        pytest.param(
            BANDIT,
            REGRET._replace(at_latency=4.0, sampler="random", first_rung=1.0),
            marks=pytest.mark.slow,
        ),
        pytest.param(
            {**BANDIT, "policy": [{"name": "pause"}, {"name": "sa_pause", "annealing_steps": 20}]},
            REGRET._replace(budget=12_000, most=64, constraints=("max_leakage<=60",)),
            marks=pytest.mark.slow,
        ),
        pytest.param(
            TRAINING,
            Options(budget=900, most=8, reduction=3.0, constraints=("max_leakage<=60",)),
            marks=pytest.mark.slow,
        ),
    ],
)
def test_a_killed_search_makes_the_same_choices(document, options, tmp_path):
    whole = found(document, options, Folder(tmp_path / "whole"))
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
            again = found(document, options, Folder(tmp_path / "again"), check=killed)
            break
        except Kill:
            pass
    else:
        pytest.fail("never came to its end")
    assert kills > 0
    assert_the_same(whole, again, tmp_path)


@pytest.mark.slow
def test_as_many_kills_as_are_asked_for_change_nothing(tmp_path, request):
    """`--kills 20`: each in another step."""
    options, kills = REGRET._replace(budget=24_000, most=8), request.config.getoption("--kills")
    steps = 0

    def count():
        nonlocal steps
        steps += 1

    whole = found(BANDIT, options, Folder(tmp_path / "whole"), check=count)
    assert steps > kills, "too few steps for so many kills"
    ends = np.sort(np.random.default_rng(1).choice(np.arange(1, steps), kills, replace=False))
    for end in ends:
        left = int(end)

        def killed():
            nonlocal left
            left -= 1
            if not left:
                raise Kill

        with pytest.raises(Kill):
            found(BANDIT, options, Folder(tmp_path / "again"), check=killed)
    again = found(BANDIT, options, Folder(tmp_path / "again"))
    assert_the_same(whole, again, tmp_path)


def assert_the_same(whole, again, folder):
    """Two searches chose, saw and left the same, byte for byte: in `whole` and in `again`."""
    for one, other in zip(whole.ended, again.ended, strict=True):
        assert one[:3] == other[:3] and one[4:] == other[4:], one.number
        np.testing.assert_array_equal(one.figures, other.figures)
    a, b = ((folder / name / "results.zarr") for name in ("whole", "again"))
    files = sorted(path.relative_to(a) for path in a.rglob("*") if path.is_file())
    assert files == sorted(path.relative_to(b) for path in b.rglob("*") if path.is_file())
    for file in files:
        assert (a / file).read_bytes() == (b / file).read_bytes(), file


def test_a_time_that_the_rounds_do_not_reach_is_said():
    played = found(BANDIT, REGRET._replace(budget=1200, at_latency=500.0))
    assert summary(played).endswith("had played their 75 rounds before 500 s")
    assert all(one.short for one in played.ended if one.why == "finished")


def test_a_budget_that_brings_nobody_to_a_rung_is_said():
    with pytest.raises(SpecError, match="was spent before any setting came to 50 s"):
        found(BANDIT, REGRET._replace(budget=60, at_latency=50.0, reduction=1.0))


def test_damage_to_the_journal_costs_only_time(tmp_path):
    whole = found(BANDIT, REGRET, Folder(tmp_path))
    (tmp_path / "journal" / "000002.json").write_text("{")
    again = found(BANDIT, REGRET, Folder(tmp_path))
    assert [one[:3] for one in again.ended] == [one[:3] for one in whole.ended]


@pytest.mark.slow
def test_a_grid_plays_every_setting_once():
    document = {
        **BANDIT,
        "reward": {"generalization_weight": [1.0, 10.0], "privacy_weight": [1.0, 5.0]},
        "policy": [{"name": "pause"}, {"name": "random"}],
    }
    played = found(document, REGRET._replace(sampler="grid", reduction=1.0, budget=10**6))
    assert all(one.why == "finished" for one in played.ended)
    settings = [one.setting.key for one in played.ended]
    assert len(settings) == len(set(settings)) == 8


def test_lists_that_are_zipped_go_together():
    document = {
        **BANDIT,
        "zip": [["alpha", "gamma"]],
        "reward": {"generalization_weight": [1.0, 10.0, 100.0], "privacy_weight": [2.0, 20.0, 200.0]},
    }
    played = found(document, REGRET._replace(budget=2000, sampler="random"))
    for one in played.ended:
        values = one.setting.values
        assert values["privacy_weight"] == 2 * values["generalization_weight"]


def test_several_objectives_leave_a_front():
    played = found(
        BANDIT, REGRET._replace(metrics=("cumulative_pseudo_regret", "max_leakage"), sampler="nsga2")
    )
    best = played.best(50)
    values = np.array([one.history[-1][1].values for one in best])
    front = [not any((other >= own).all() and (other > own).any() for other in values) for own in values]
    assert front == sorted(front, reverse=True), "somebody who is beaten comes before somebody who is not"


def test_constraints_are_kept_by_the_best():
    played = found(BANDIT, REGRET._replace(constraints=("mean_latency>=0.2",)))
    best = played.best(1)[0]
    latency = played.result["elapsed"].values[2 * best.number : 2 * best.number + 2, -1] / 75
    kept = [one for one in played.ended if one.why == "finished" and one.history[-1][1].violation == 0]
    assert latency.mean() >= 0.2 or not kept
    assert ("none that came so far keeps" in summary(played)) == (not kept)


def test_a_bound_that_binds_at_the_end_does_not_stop_who_will_keep_it():
    """What grows from round to round breaks no bound early, and whoever spends most looks best there."""
    goal = goal_of(
        kinds.parse(BANDIT, searched=True),
        ("cumulative_reward",),
        None,
        ("max_leakage<=40",),
        horizon=75,
        by_latency=False,
        reduction=3.0,
        first=25.0,
        step=25,
    )
    greedy, thrifty, poor = (
        [[reward, leakage]] for reward, leakage in ((9.0, 30.0), (8.0, 12.0), (7.0, 13.0))
    )
    early = [goal.shown(np.array(figures), 0) for figures in (greedy, thrifty, poor)]
    assert [shown.violation for shown in early] == [0, 0, 0]
    assert Halving(2, 2.0).go_on(0, early) == [True, True, False]
    assert goal.shown(np.array([[9.0, 50.0]]), 1) == Shown((9.0,), 0.25)


def test_constraints_that_nobody_keeps_are_said():
    played = found(BANDIT, REGRET._replace(constraints=("max_leakage<=0.001",), budget=1200))
    assert summary(played).endswith("none that came so far keeps the constraints")


def test_other_searches_and_studies_keep_their_folders(tmp_path):
    found(BANDIT, REGRET._replace(budget=600), Folder(tmp_path / "a"))
    with pytest.raises(SpecError, match=r"another search; it differs in budget \(600, now 700\)"):
        found(BANDIT, REGRET._replace(budget=700), Folder(tmp_path / "a"))
    with pytest.raises(SpecError, match="another search; it differs in the spec"):
        found({**BANDIT, "seeds": 1}, REGRET._replace(budget=600), Folder(tmp_path / "a"))
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "spec.toml").write_text("")
    with pytest.raises(SpecError, match="a study that is no search"):
        found(BANDIT, REGRET, Folder(tmp_path / "b"))


def test_a_search_at_its_end_is_not_played_again_unless_its_result_is_damaged(tmp_path, monkeypatch):
    whole = found(BANDIT, REGRET._replace(budget=1200), Folder(tmp_path))
    with monkeypatch.context() as patched:
        patched.setattr(Lanes, "advance", None)
        again = found(BANDIT, REGRET._replace(budget=1200), Folder(tmp_path))
    assert [one[:3] for one in again.ended] == [one[:3] for one in whole.ended]
    chunk = next(path for path in (tmp_path / "results.zarr" / "reward" / "c").rglob("*") if path.is_file())
    before = chunk.read_bytes()
    chunk.write_bytes(before[:-1])
    found(BANDIT, REGRET._replace(budget=1200), Folder(tmp_path))
    assert chunk.read_bytes() == before


@pytest.mark.slow
def test_defaults_that_do_not_fit_are_no_contenders():
    """Of as few clients as this searches, the default cohort of five could not be chosen."""
    document = {
        **BANDIT,
        "network": {"num_clients": 4, "clients_per_round": [2, 3]},
        "reward": {"generalization_weight": 10.0},
    }
    played = found(document, REGRET._replace(budget=1000, metrics=("mean_latency",)))
    labels = [policy.label for policy in confirm.confirmation(played, 2).policies]
    assert labels[0] == "best" and "default" not in labels
    assert "default" in confirm.contenders(played)
