"""The specs of the paper's figures: their settings, and what they draw. That each runs: `tests/commands`."""

import tomllib
from pathlib import Path

import numpy as np
import pytest

from pausejax import kinds as spec
from pausejax.data.host import DataCache
from pausejax.execution.local import LocalExecutor
from pausejax.execution.play import play_in_memory
from pausejax.study.plan import make_plan

PAPER = Path(__file__).resolve().parents[2] / "sweeps" / "paper"


@pytest.mark.slow
def test_leakage_is_the_same_where_next_to_nothing_is_learned():
    """What makes Figures 3, 5, 7 and 9 cheap: who takes part does not depend on what is learned."""

    def simulate(figure, **training):
        document = tomllib.loads((PAPER / f"{figure}.toml").read_text(encoding="utf-8"))
        document |= {"rounds": 20, "eval_every": 20, "seeds": 2}
        document["data"] |= {"dataset": "digits", "train_samples": 0}
        document["training"] |= training
        document["policy"] = [p for p in document["policy"] if p["name"] in ("pause", "clustered_size")]
        return play_in_memory(make_plan(spec.parse(document)), LocalExecutor(DataCache()))

    learned, cheap = simulate("fig4", model="mlp"), simulate("fig5")
    assert (learned["test_accuracy"].values != cheap["test_accuracy"].values).all()
    np.testing.assert_array_equal(learned["policy"].values, cheap["policy"].values)
    np.testing.assert_array_equal(learned["selected"].values, cheap["selected"].values)
    np.testing.assert_allclose(learned["max_leakage"].values, cheap["max_leakage"].values, rtol=1e-6)


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
    # The next figure shows the leakage of the same study, whose layers in the clear would give it no bound.
    twin = spec.load(PAPER / f"fig{int(figure[3:]) + 1}.toml")
    changed = {name for name in study.axes if study.axes[name] != twin.axes[name]}
    assert changed <= {"model", "norm", "batch_statistics", "max_steps", "persist_optimizer"}
    algorithms = [policy.label for policy in study.policies]
    assert all(policy.label in algorithms for policy in twin.policies)
