"""Who decides how a study lies on its devices, and who is told of runs that were there before."""

from types import SimpleNamespace

import numpy as np
import pytest
import xarray as xr

from pausejax.engine import local
from pausejax.engine.local import Settings
from pausejax.engine.tuning import Asked, Decided


class Answers(Decided):
    """Decided, with layouts by the names of a study's folder."""

    @property
    def layouts(self):
        return {"a": 1}


PLAN = SimpleNamespace(
    identities=["p", "q", "r", "s"],
    groups=[
        SimpleNamespace(number=number, members=members) for number, members in enumerate([(0, 2), (1,), (3,)])
    ],
)


@pytest.fixture
def settle(monkeypatch):
    def settle(*, before=None, after=None, settled=(), is_local=True, answers=True, **settings):
        asked, kept = [], []
        decided = Answers({7: 8}, {"a": 1} if answers else {})

        def decide(engine, groups, how):
            assert engine.plan is PLAN
            asked.append(([group.number for group in groups], how))
            return decided

        def keep(folder, lock, layouts):
            kept.append(layouts)
            return after or layouts

        monkeypatch.setattr(local, "decide", decide)
        monkeypatch.setattr(local.placements, "read", lambda folder: before or {})
        monkeypatch.setattr(local.placements, "settle", keep)
        folder, engine = SimpleNamespace(is_local=is_local), SimpleNamespace(plan=PLAN)
        assert local.settle(folder, engine, settled, Settings(**settings)) == {7: 8}
        return asked, kept

    return settle


@pytest.mark.parametrize(
    ("settings", "tunes"),
    [
        ({}, False),
        ({"tune": True}, True),
        ({"tune": True, "shard": (1, 2)}, True),
        ({"tune": True, "is_local": False}, True),
        ({"tune": True, "is_local": False, "shard": (2, 2)}, False),
        ({"tune": False, "is_local": False}, False),
    ],
)
def test_what_was_measured_counts_where_it_is_asked_for_and_all_can_agree(settle, settings, tunes):
    ((groups, asked),), kept = settle(before={"b": 2}, most=5, **settings)
    assert groups == [0, 1, 2] and kept == [{"a": 1}]
    assert asked == Asked({"b": 2}, kept=tunes, seconds=None if tunes else 0.0, most=5)


def test_only_groups_with_runs_to_play_are_asked_for(settle):
    (((groups, _),), _) = settle(settled=["p", "q", "x"])
    assert groups == [0, 2]


def test_whoever_is_later_plays_as_the_first_one_said(settle):
    asked, _ = settle(after={"a": 2})
    assert [how.settled for _, how in asked] == [{}, {"a": 2}] and asked[0][0] == asked[1][0]
    assert len(settle(after={"a": 1, "b": 3})[0]) == 1


def test_where_nothing_was_asked_nothing_is_kept(settle):
    asked, kept = settle(before={"a": 1}, answers=False)
    assert len(asked) == 1 and not kept


@pytest.mark.parametrize("count", [0, 1, 3, 4, 7])
def test_a_tracker_is_told_of_every_run_that_was_there_once(monkeypatch, count):
    whole = xr.Dataset(coords={"identity": ("run", np.arange(100))})
    told = []
    tracker = SimpleNamespace(runs_finished=lambda runs: told.append(runs["identity"].values.tolist()))
    monkeypatch.setattr(local.store, "read", lambda folder: whole if folder == "here" else None)
    monkeypatch.setattr(local, "_TOLD_AT_ONCE", 3)
    members = frozenset(range(90, 90 - 9 * count, -9))
    local.tell(tracker, "here", members)
    assert [one for part in told for one in part] == sorted(members)
    assert all(len(part) == 3 for part in told[:-1]) and len(told) == -(-count // 3)


def test_places_are_those_of_known_runs():
    assert local.places(PLAN, ["s", "q", "x"]) == {1, 3}
