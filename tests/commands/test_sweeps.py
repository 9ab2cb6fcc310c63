"""Every spec of `sweeps/` runs, very small, and draws the charts that its header names."""

import re
from pathlib import Path

import numpy as np
import pytest

import pausejax
from pausejax import kinds
from pausejax.commands import main as cli
from pausejax.ensemble import regression_data
from pausejax.study.spec import SpecError

SWEEPS = Path(__file__).resolve().parents[2] / "sweeps"
SPECS = sorted(SWEEPS.rglob("*.toml"))
CHART = re.compile(
    r"\b(?:\w+_vs_(?:round|time)|heatmap_\w+|main_effects(?:_\w+)?|pareto(?:_\w+)?|participation|models_sent)\b"
)
TRAINING = (
    *("data.dataset=digits", "data.train_samples=0", "data.concentration=3.0", "training.model=linear"),
    *("eval_every=2", "max_steps=1", "persist_optimizer=false"),
    *("network.num_clients=30", "network.clients_per_round=5", "annealing_steps=20"),
)
_SMALL = ("eval_every=2", "max_steps=1", "training.model=linear")
OF_SPEC = {
    "annealing_gap": ("rounds=30", "annealing_steps=20"),  # K / m rounds go by before everybody was seen
    "hyperparameters": ("annealing_steps=5",),
    "quickstart": _SMALL,
    "efl_fg": ("eval_every=2", "network.num_clients=30"),
    "digits": ("sampling.n=20", *_SMALL),
    **dict.fromkeys(("digits_equal", "digits_skewed", "algorithms"), _SMALL),
    "endings": (*_SMALL, 'network.ending=["deadline", "buffered"]'),
    **dict.fromkeys(("pause_digits", "pause_skewed"), ("sampling.n=20", *_SMALL)),
    "pause_mnist": ("sampling.n=20", "data.dataset=digits", "data.train_samples=0", *_SMALL),
    "norm_and_rate": (*_SMALL, "norm=group", "data.dataset=digits", "data.train_samples=0"),
    "central_privacy": (
        *("network.num_clients=20", "network.clients_per_round=4", "training.max_steps=2"),
        *("data.dataset=digits", "data.train_samples=0"),
    ),
    **dict.fromkeys(("mnist", "privacy_cost"), (*_SMALL, "data.dataset=digits", "data.train_samples=0")),
    "efl_fg_table1": ("network.num_clients=30",),
    "sampled": ("sampling.n=20",),
}


def comment(spec):
    """The comment at the top of a spec, on one line."""
    lines = spec.read_text(encoding="utf-8").splitlines()
    end = next(place for place, line in enumerate(lines) if not line.startswith("#"))
    return " ".join(line.removeprefix("#").strip() for line in lines[:end])


def effective(spec, overrides):
    """Those that some run of the spec reads: the rest are refused."""
    try:
        kinds.load(spec, overrides)
    except SpecError as mistakes:
        idle = {line.partition(": has no effect")[0].removeprefix("--set ") for line in mistakes.problems}
        if not idle & set(overrides):
            raise
        return effective(spec, [override for override in overrides if override not in idle])
    return overrides


@pytest.fixture(scope="module")
def tables(tmp_path_factory):
    """Files like those of UCI, of few made-up rows."""
    folder = tmp_path_factory.mktemp("tables")
    rng = np.random.default_rng(0)
    for table in regression_data._TABLES.values():
        columns = table.header.split(",")
        rows = rng.normal(size=(240, len(columns))).round(4).astype(str)
        text = "\n".join([table.header, *(",".join(row) for row in rows)])
        (folder / table.file).write_text(text + "\n")
    return folder


@pytest.mark.slow
@pytest.mark.parametrize("spec", SPECS, ids=lambda spec: spec.stem)
def test_each_spec_draws_what_its_header_names(spec, tmp_path, tables):
    named = set(CHART.findall(comment(spec)))
    assert named, f"{spec.name}: the comment at its top names no chart"
    overrides = ["rounds=4", "seeds=2", *(TRAINING if spec.parent.name == "paper" else ())]
    overrides += OF_SPEC.get(spec.stem, ())
    settings = [text for override in effective(spec, overrides) for text in ("--set", override)]
    arguments = ["run", str(spec), "--out", str(tmp_path), "--data-dir", str(tables), "--quiet"]
    assert cli.main([*arguments, *settings]) == cli.OK
    for name in named:
        drawn = list(tmp_path.glob(f"{name.replace('METRIC', '*')}.png"))
        assert drawn and all(path.read_bytes()[1:4] == b"PNG" for path in drawn), name
    result = pausejax.open(tmp_path)
    if "test_accuracy" in result:
        assert np.isfinite(result["test_accuracy"].values).all()
