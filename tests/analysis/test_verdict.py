"""The best setting beside the next: what `best` and `paired_difference` say of the two, and as a command."""

import numpy as np
import pytest

from pausejax import analysis
from pausejax.commands import main as cli

from .made_up import AXES, POLICIES, build, store


def means(result, metric):
    """The mean of each setting, by its label."""
    found = analysis.mean_ci(result, metric)
    return dict(zip(found["label"].values.tolist(), found["mean"].values.tolist(), strict=True))


@pytest.mark.parametrize("metric", ["elapsed", "cumulative_pseudo_regret"])
def test_the_two_best_and_their_paired_difference(result, metric):
    # Regrets are compared where the reward is the same.
    if metric != "mean_latency":
        result = analysis.select(build(POLICIES, 6, AXES, whole=True)[0], gamma=1)
    found = analysis.verdict(result, metric)
    ranked = sorted(means(result, metric).items(), key=lambda pair: pair[1])
    assert (found.metric, found.settings) == (metric, len(ranked))
    assert [s["label"].item() for s in (found.best, found.runner_up)] == [name for name, _ in ranked[:2]]
    assert float(found.difference["mean"]) == pytest.approx(ranked[0][1] - ranked[1][1])
    assert int(found.difference["count"]) == 6
    assert float(found.difference["low"]) < float(found.difference["mean"]) < float(found.difference["high"])


def test_one_setting_has_no_rival_and_strangers_no_difference():
    alone = build({"uniform": {}}, 3, ())[0]
    found = analysis.verdict(alone, "mean_latency")
    assert found.settings == 1 and found.runner_up is None and found.difference is None
    pair = build({"a": {}, "b": {}}, 3, ())[0]
    apart = pair.assign_coords(seed=pair["seed"] + 10 * (pair["policy"] == "a"))
    found = analysis.verdict(apart, "mean_latency")
    assert found.runner_up is not None and found.difference is None


def test_settings_without_a_value_are_not_compared(tmp_path, capsys):
    """Of five settings one has no value of its last round, one has it in half of its runs."""
    made = build(
        {"a": {"privacy_weight": [1.0, 2, 3, 4, 5]}}, 4, {"privacy_weight": "gamma"}, "bandit", whole=True
    )[0]
    gap, gamma = made["selection_gap"].values, made["privacy_weight"].values
    gap[gamma == 3.0] = np.inf
    gap[(gamma == 4.0) & (made["seed"].values < 2)] = np.inf
    found = analysis.verdict(made, "exact_share")
    assert (found.settings, found.without_value) == (4, 1)
    one = analysis.verdict(analysis.select(made, gamma=[1.0, 3.0]), "exact_share")
    assert (one.settings, one.without_value) == (1, 1) and one.runner_up is None
    store(made, tmp_path)
    _, lines, _ = run(capsys, tmp_path, "--metric", "exact_share")
    assert lines[1].startswith("  best of 4 (1 more have no value): a, ")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    out = tmp_path_factory.mktemp("best")
    store(build(POLICIES, 6, AXES)[0], out)
    return out


def run(capsys, *arguments):
    code = cli.main(["best", *map(str, arguments)])
    told = capsys.readouterr()
    return code, told.out.splitlines(), told.err


def test_the_command_says_both_and_whether_they_differ(folder, capsys):
    code, lines, _ = run(capsys, folder, "--metric", "mean_latency")
    assert code == 0 and lines[0].startswith("mean simulated duration of a round, s: lower is better")
    assert lines[1].startswith("  best of 11: ") and lines[2].startswith("  runner-up: ")
    assert lines[3].startswith("  difference, paired by 6 seeds: -") and "cludes 0" in lines[3]
    assert "fresh seeds" in lines[4] and len(lines) == 5
    # Without a metric it is the table's, in the table's numbers.
    code, lines, _ = run(capsys, folder)
    assert lines[0].startswith("final test accuracy, %: higher is better")


def test_the_command_counts_seeds_not_runs(tmp_path, capsys):
    """Of three policies one has two runs for each seed, another lacks a seed."""
    made = build({"a": {}, "b": {}, "c": {}}, 4, (), "bandit", whole=True)[0]
    policy, seed = made["policy"].values, made["seed"].values
    made = made.isel(run=np.flatnonzero((policy != "c") | (seed < 3)))
    policy = made["policy"].values
    made = made.isel(run=np.repeat(np.arange(len(policy)), np.where(policy == "a", 2, 1)))
    store(made, tmp_path)
    for ask, ends in (("policy=a,policy=b", ("", "")), ("policy=a,policy=c", ("; 3 seeds", "; 4 seeds"))):
        _, lines, _ = run(capsys, tmp_path, "--metric", "mean_latency", "--where", ask)
        assert sorted(line.partition(")")[2] for line in lines[1:3]) == sorted(ends)


def test_the_command_chooses_among_some_and_for_each(folder, capsys):
    _, lines, _ = run(capsys, folder, "--metric", "mean_latency", "--where", "policy=annealed,γ=1,J=10")
    assert lines[1].startswith("  best of 2: annealed, γ = 1, J = 10, κ = ")
    _, lines, _ = run(capsys, folder, "--metric", "mean_latency", "--per", "policy")
    winners = sorted(line.split(":")[0] for line in lines if line.startswith("  best of"))
    assert winners == ["  best of 2", "  best of 8"]
    assert sum("the only setting: uniform" in line for line in lines) == 1


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (["--metric", "speed"], "metric 'speed': must be one of"),
        (["--where", "gama=1"], "did you mean 'gamma'?"),
        (["--where", "gamma=2"], "gamma = 2: no run has this value; did you mean 1?"),
        (["--per", "x"], "--per = 'x': is no axis of this result"),
        (["--metric", "rounds_played"], "neither more nor less is better by definition"),
    ],
)
def test_mistakes_are_one_line(folder, capsys, more, said):
    code, lines, error = run(capsys, folder, *more)
    assert code == cli.BAD_SPEC and not lines and said in error and error.count("\n") == 1


def test_what_cannot_be_compared_comes_with_options_to_type(tmp_path, capsys):
    made = build({"a": {"privacy_weight": [1.0, 5.0]}}, 2, {"privacy_weight": "gamma"}, "bandit", whole=True)[
        0
    ]
    store(made, tmp_path)
    code, _, error = run(capsys, tmp_path, "--metric", "cumulative_pseudo_regret")
    assert code == cli.BAD_SPEC and error.count("\n") == 1
    assert "Choose one value, --where γ=1, or the best of each value, --per γ" in error
    for options in (["--where", "γ=1"], ["--per", "γ"]):
        assert run(capsys, tmp_path, "--metric", "cumulative_pseudo_regret", *options)[0] == cli.OK


def test_an_infinite_figure_is_the_worst():
    made = build({"a": {}, "b": {}}, 3, (), "bandit")[0]
    endless = made["max_leakage"].where(made["policy"] != "a", np.inf)
    found = analysis.verdict(made.assign(max_leakage=endless), "max_leakage")
    assert found.best["label"].item() == "b" and found.runner_up is None
