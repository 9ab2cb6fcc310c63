"""How a study lies on its devices: by the table, as its folder says, and the same for all who play it."""

import json

import jax
import numpy as np
import pytest

import pausejax
from pausejax import measured
from pausejax.data.host import DataCache
from pausejax.devices import local_devices
from pausejax.execution.local import LocalExecutor, layout_name
from pausejax.kinds import parse
from pausejax.results import layouts
from pausejax.results.description import LAYOUT
from pausejax.results.folder import Folder
from pausejax.results.sealed import write_sealed
from pausejax.results.stores import FolderStore
from pausejax.study.plan import make_plan

from .test_play import LONG, interrupted, simulate

pytestmark = pytest.mark.usefixtures("compiled_once")

LEARNING = {
    "rounds": 4,
    "eval_every": 2,
    "seeds": 3,
    "network": {"num_clients": 4, "clients_per_round": 2},
    "data": {"dataset": "digits", "train_samples": 80},
    "training": {"model": "mlp", "max_steps": 2, "batch_size": 8},
    "policy": [{"name": "pause"}, {"name": "random"}],
}


def fixed(folder, document, **more):
    """The layouts that a process fixes or finds, and plays."""
    plan, executor = make_plan(parse(document)), LocalExecutor(DataCache(), **more)
    fixed = executor.layouts(plan, FolderStore(Folder(folder)))
    assert list(fixed) == [group.key for group in plan.groups]
    played = [executor.program(plan.study, group).layout for group in plan.groups]
    assert [own._replace(runs=0) for own in played] == [own._replace(runs=0) for own in fixed.values()]
    return list(fixed.values())


def changed(folder, **values):
    """Has the folder's layouts say something else."""
    entries = json.loads((folder / LAYOUT).read_text())["content"]
    write_sealed(Folder(folder), LAYOUT, {name: {**entry, **values} for name, entry in entries.items()})


def test_whoever_begins_fixes_the_layout_for_all(tmp_path):
    first = fixed(tmp_path, LEARNING, max_width=2)
    assert {own.runs for own in first} == {2} and fixed(tmp_path, LEARNING) == first
    names = [layout_name(group) for group in make_plan(parse(LEARNING)).groups]
    assert set(layouts.Layouts(Folder(tmp_path)).by_name()) == set(names) and len(set(names)) == 2


def test_widths_never_exceed_the_table(tmp_path):
    """The layout says what is compiled."""
    most = measured.max_width(jax.default_backend())
    assert {own.runs for own in fixed(tmp_path, LEARNING, max_width=2 * most)} == {most}


def test_a_layout_of_the_folder_is_played_whatever_the_table_says(tmp_path):
    own, _ = fixed(tmp_path, LEARNING)
    changed(tmp_path, lanes=1, conv="lax")
    found, _ = fixed(tmp_path, LEARNING)
    assert own.lanes != 1 and found == own._replace(lanes=1, conv="lax")


@pytest.mark.parametrize(
    "change",
    [
        *({"runs": 0}, {"runs": 2.0}, {"lanes": -1}, {"lanes": True}, {"eval_batch": 2**30}),
        *({"conv": "winograd"}, {"sharded": "no"}, {"more": 1}),
    ],
)
def test_what_is_no_layout_is_left_aside(tmp_path, change):
    own = fixed(tmp_path, LEARNING)
    changed(tmp_path, **change)
    assert fixed(tmp_path, LEARNING) == own


def test_other_devices_have_layouts_of_their_own(tmp_path, monkeypatch):
    fixed(tmp_path, LEARNING, max_width=2)
    monkeypatch.setattr("pausejax.execution.local.local_devices", lambda: "1 × another card")
    assert fixed(tmp_path, LEARNING)[0].runs > 2
    kinds = {name.split(":")[0] for name in layouts.Layouts(Folder(tmp_path)).by_name()}
    assert kinds == {local_devices(), "1 × another card"}


def test_a_group_has_one_name_whatever_else_its_study_holds():
    (alone,) = make_plan(parse({**LEARNING, "policy": [{"name": "random"}]})).groups
    _, beside = make_plan(parse(LEARNING)).groups
    assert alone.key == beside.key and alone.key.startswith("random ")
    other = make_plan(parse({**LEARNING, "training": {**LEARNING["training"], "batch_size": 16}}))
    assert beside.key not in {group.key for group in other.groups}


@pytest.mark.slow
def test_a_smaller_width_on_a_resume_narrow_what_is_left_and_no_share(tmp_path):
    simulate(LONG, tmp_path / "whole")
    interrupted(LONG, tmp_path / "narrow", 1)
    simulate(LONG, tmp_path / "narrow", max_width=3)
    assert 3 in layouts.Layouts(Folder(tmp_path / "narrow")).fitted_widths().values()
    a, b = (pausejax.open(tmp_path / name).load() for name in ("whole", "narrow"))
    np.testing.assert_array_equal(a["selected"], b["selected"])
