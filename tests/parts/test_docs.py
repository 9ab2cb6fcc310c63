"""docs/extending.md: its examples work as they stand there, and its table is true of every kind of part."""

import re
import tomllib
from pathlib import Path

import numpy as np
import pytest

import pausejax
from pausejax import kinds, parts

ROOT = Path(__file__).resolve().parents[2]
TEXT = (ROOT / "docs" / "extending.md").read_text(encoding="utf-8")
CODE, ALGORITHM = re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL)[:2]
TABLE = [
    [cell.strip() for cell in row.split("|")[1:4]]
    for row in TEXT.partition("## What to touch")[2].splitlines()
    if row.startswith(("| a ", "| an "))
]


@pytest.fixture
def written(tmp_path, monkeypatch):
    (tmp_path / "mine.py").write_text(CODE)
    monkeypatch.chdir(tmp_path)
    return tmp_path / "mine.py"


def test_every_kind_of_part_is_shown(written):
    study = kinds.parse({"use": ["mine.py"], "policy": [{"name": "in_turn"}]})
    shown = {part.category for part in study.parts.own()}
    assert shown == {name for name in vars(parts) if name in dir(pausejax)} & parts.CATEGORIES.keys()
    assert len(shown) == len(study.parts.own()) == 13


@pytest.mark.slow
def test_the_parts_play_together(written, tmp_path):
    network = {
        "num_clients": 4,
        "clients_per_round": 2,
        "latency": "uniform_speed",
        "availability": "every_other",
        "ending": "nobody_waits",
        "mechanism": "rounded",
        "federated_algorithm": "damped",
        "aggregator": "largest",
    }
    learning = {"model": "small", "task": "absolute_error", "dataset": "waves", "partition": "neighbours"}
    found = pausejax.simulate(
        {"name": "in_turn", "stride": 2},
        rounds=4,
        eval_every=4,
        use=["mine.py"],
        quantities=["slowest_of_all"],
        server_optimizer="fedlion",
        server_learning_rate=0.05,
        **network,
        **learning,
    )
    assert found["test_mae"].shape == (1, 1) and np.isfinite(found["test_mae"]).all()
    np.testing.assert_array_equal(found["selected"].values[0], [[1, 3], [0, 2]] * 2)
    assert (found["slowest_of_all"] >= found["round_latency"]).all()


@pytest.mark.slow
def test_the_algorithm_in_full_is_scaffold(tmp_path):
    (tmp_path / "mine.py").write_text(ALGORITHM)
    options = {"train_samples": 600, "rounds": 3, "eval_every": 1, "seeds": 2}
    options |= {"optimizer": "sgd", "model": "linear"}
    own, builtin = (
        pausejax.simulate(
            ["random"], use=[str(tmp_path / "mine.py")], federated_algorithm=name, private=False, **options
        )
        for name in ("controlled", "scaffold")
    )
    np.testing.assert_array_equal(own["test_loss"].values, builtin["test_loss"].values)


def test_the_first_spec_is_the_example(tmp_path):
    (spec,) = re.findall(r"```toml\n(.*?)```", TEXT, re.DOTALL)
    document = tomllib.loads(spec)
    document["use"].remove("lab.models")
    study = kinds.parse(document, folder=ROOT / "examples")
    assert study.policies[0].axes["stickiness"] == (0.0, 0.5, 0.9)


def test_the_table_covers_every_kind_of_part():
    rows = {re.sub(r"^an? ", "", what): (outside, inside) for what, outside, inside in TABLE}
    assert set(parts.CATEGORIES) <= set(rows)
    for category in parts.CATEGORIES:
        outside, inside = rows[category]
        decorator = re.search(r"@pausejax\.([a-z_.]+)", outside).group(1)
        home = pausejax if "." not in decorator else parts
        assert getattr(home, decorator.split(".")[-1]) is getattr(parts, category)
        patterns = re.findall(r"`(pausejax/[^`]+)`", inside)
        files = {path for pattern in patterns for path in ROOT.glob(pattern)}
        for part in parts.registered_parts().of(category).values():
            assert part.outside or Path(part.file) in files, (category, part.name, part.file)


def test_no_row_of_the_table_names_more_than_two_files():
    for what, outside, inside in TABLE:
        named = re.findall(r"`(pausejax/[^`]+)`", inside)
        assert len(named) <= 2 and all(list(ROOT.glob(name)) for name in named), what
        assert outside
