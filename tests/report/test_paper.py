"""The specs of the paper's figures: every one runs and draws what it reproduces."""

import json
from pathlib import Path

import numpy as np
import pytest

import pausejax
from pausejax import cli
from pausejax.report import paper
from pausejax.sweep import spec

PAPER = Path(__file__).resolve().parents[2] / "sweeps" / "paper"
# Every figure small: the data that are bundled, a few rounds, one step of a small network.
SMALL = (
    *("seeds=2", "rounds=4", "eval_every=2", "data.dataset=digits"),
    *("training.model=linear", "max_steps=1", "persist_optimizer=false"),
)
SMALL_LARGE = ("network.num_clients=60", "annealing_steps=50")


def run(figure, out, *overrides):
    settings = [text for override in overrides for text in ("--set", override)]
    arguments = ["run", str(PAPER / f"{figure}.toml"), "--out", str(out), "--quiet", "--smooth", "2"]
    assert cli.main([*arguments, *settings]) == cli.OK
    return pausejax.open(out).load()


def test_figure_1_draws_the_generalization_reward(tmp_path):
    result = run("fig1", tmp_path, "rounds=30")
    assert (tmp_path / "generalization_reward.png").read_bytes()[1:4] == b"PNG"
    axes = paper.draw(result)["generalization_reward"].axes[0]
    assert [line.get_label() for line in axes.lines] == ["β = 1.5", "β = 2", "β = 3"]
    for line, beta in zip(axes.lines, (1.5, 2, 3), strict=True):
        share, reward = (np.asarray(values, np.float64) for values in line.get_data())
        assert share[0] == 0 and share[-1] == 1
        lag = 5 / 30 - share
        np.testing.assert_allclose(reward, np.sign(lag) * abs(lag) ** beta, atol=1e-6)


def test_no_other_study_draws_it(tmp_path):
    one = run("fig1", tmp_path / "one", "rounds=8", "reward.generalization_exponent=2.0")
    assert paper.draw(one) == {}
    several = run("fig1", tmp_path / "m", "rounds=8", "network.clients_per_round=[2, 5]")
    assert json.loads(several.attrs["axes"]) == ["clients_per_round", "generalization_exponent"]
    assert paper.draw(several) == {}


@pytest.mark.slow
@pytest.mark.parametrize("figure", [f"fig{number}" for number in range(2, 10)])
def test_each_figure_runs_small(tmp_path, figure):
    large = SMALL_LARGE if spec.load(PAPER / f"{figure}.toml").axes["num_clients"] == (300,) else ()
    result = run(figure, tmp_path, *SMALL, *large)
    drawn = {2: "accuracy_vs_latency", 3: "leakage_vs_rounds", 4: "accuracy_vs_latency"}
    picture = drawn.get(
        int(figure[3:]), ("accuracy" if int(figure[3:]) % 2 == 0 else "leakage") + "_vs_latency"
    )
    assert (tmp_path / f"{picture}.png").read_bytes()[1:4] == b"PNG"
    assert (tmp_path / f"{picture}.pdf").read_bytes()[:4] == b"%PDF"
    assert np.isfinite(result["test_accuracy"].values).all()
    assert not result["diverged_round"].values.any()


@pytest.mark.slow
@pytest.mark.parametrize(("learning", "leakage"), [("fig2", "fig3"), ("fig4", "fig5")])
def test_leakage_is_the_same_where_next_to_nothing_is_learned(tmp_path, learning, leakage):
    """What makes Figures 3, 5, 7 and 9 cheap: who takes part does not depend on what is learned."""
    rounds = ("seeds=2", "rounds=12", "data.dataset=digits")
    learned = run(learning, tmp_path / "a", *rounds, "eval_every=12", "training.model=mlp")
    cheap = run(leakage, tmp_path / "b", *rounds, "eval_every=12")
    for policy in dict.fromkeys(cheap["policy"].values.tolist()):
        ours = cheap.isel(run=np.flatnonzero(cheap["policy"].values == policy))
        theirs = learned.isel(run=np.flatnonzero(learned["policy"].values == policy))
        slots = (ours["selected"].values >= 0).any(axis=(0, 1)).sum()
        np.testing.assert_array_equal(
            ours["selected"].values[..., :slots], theirs["selected"].values[..., :slots]
        )
        np.testing.assert_allclose(ours["max_leakage"].values, theirs["max_leakage"].values, rtol=1e-6)


@pytest.mark.parametrize(
    ("figure", "settings"),
    [
        ("fig2", {"privacy_budget": 40, "num_clients": 30, "clients_per_round": 5, "partition": "iid"}),
        ("fig4", {"privacy_budget": 100, "concentration": 3, "partition": "dirichlet_quantity"}),
        ("fig6", {"privacy_budget": 20, "num_clients": 300, "clients_per_round": 15, "dataset": "mnist"}),
        ("fig8", {"privacy_budget": 10, "concentration": 2, "exploitation_gain": 3, "dataset": "cifar10"}),
    ],
)
def test_settings_are_those_of_the_paper(figure, settings):
    common = {
        "generalization_weight": 100,
        "generalization_exponent": 2,
        "privacy_weight": 5,
        "budget_decay": 0.04,
        "batch_size": 20,
        "optimizer": "adam",
        "learning_rate": 0.01,
        "max_steps": 100,
        "clip": "coordinate",
    }
    study = spec.load(PAPER / f"{figure}.toml")
    for name, value in {**common, **settings}.items():
        assert study.axes[name] == (value,), name
    # The next figure shows the leakage of the same study.
    twin = spec.load(PAPER / f"fig{int(figure[3:]) + 1}.toml")
    changed = {name for name in study.axes if study.axes[name] != twin.axes[name]}
    assert changed <= {"model", "max_steps", "persist_optimizer"}
    algorithms = [policy.label for policy in study.policies]
    assert all(policy.label in algorithms for policy in twin.policies)
