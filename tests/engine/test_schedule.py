"""Units, shares and chunks: every unfinished run is played by exactly one process, in chunks of one width."""

import hashlib

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from pausejax.engine.schedule import Unit, cut, identities_of, name_of, share, unfinished, units
from pausejax.kinds import parse
from pausejax.study.plan import make_plan
from pausejax.study.study import Group


def plan(seeds, **axes):
    policies = [{"name": "pause"}, {"name": "random"}]
    return make_plan(parse({"mode": "bandit", "rounds": 5, "seeds": seeds, "policy": policies, **axes}))


@given(
    seeds=st.integers(1, 30),
    static=st.integers(1, 3),
    most=st.integers(1, 40),
    count=st.integers(1, 12),
    settled=st.sets(st.integers(0, 200)),
    finished=st.sets(st.integers(0, 200)),
    width=st.integers(1, 9),
)
@settings(deadline=None)
def test_shares_cover_every_unfinished_run_once(seeds, static, most, count, settled, finished, width):
    found = plan(seeds, network={"num_clients": list(range(8, 8 + static))})
    named = lambda places: {found.identities[p] for p in places if p < len(found.runs)}  # noqa: E731
    work = units(found, named(settled), most=most, at_least=count)
    left = set(found.identities) - named(settled)
    assert len(work) >= min(count, len(left))
    assert all(len(unit.rows) <= min(most, unit.width) for unit in work)
    played = [
        identity
        for number in range(1, count + 1)
        for unit in unfinished(found, share(work, number, count), named(finished))
        for chunk in cut(unit, width, width + 2)
        for identity in identities_of(found, chunk.group, chunk.members)
    ]
    assert sorted(played) == sorted(left - named(finished))


@given(members=st.integers(1, 300), width=st.integers(1, 90), killed_after=st.integers(0, 20))
def test_a_killed_unit_goes_on_with_the_very_chunks_that_it_had(members, width, killed_after):
    unit = Unit(Group(0, "pause", {}, tuple(range(members))), np.arange(members), members)
    chunks = cut(unit, width, width)
    left = unit
    for chunk in chunks[:killed_after]:
        left = left.without(chunk)
    rest = cut(left, width, width)
    assert len(rest) == len(chunks[killed_after:])
    for one, other in zip(rest, chunks[killed_after:], strict=True):
        np.testing.assert_array_equal(one.rows, other.rows)
        np.testing.assert_array_equal(one.members, other.members)


def test_a_chunk_is_filled_up_with_its_last_run():
    (chunk,) = cut(Unit(Group(0, "pause", {}, (4, 7, 9)), np.array([1, 2]), 3), 3, 4)
    assert chunk.rows.tolist() == [1, 2, 2, 2] and chunk.members.tolist() == [1, 2]


def test_a_chunk_is_named_by_its_runs_alone():
    names = [
        name_of(found, cut(unit, 3, 3)[0])
        for found in (plan(3), plan(6))
        for unit in units(found, (), most=3)[:1]
    ]
    assert names[0] == names[1]


def sizes(work):
    return [(unit.group.number, len(unit.rows), unit.width) for unit in work]


def test_units_are_of_nearly_one_size_and_large_groups_are_cut_first():
    """Two groups of ten runs; then ten, or none, and four that are left."""
    whole = plan(10)
    assert sizes(units(whole, (), most=40)) == [(0, 10, 10), (1, 10, 10)]
    assert sizes(units(whole, (), most=10)) == [(0, 10, 10), (1, 10, 10)]
    work = units(whole, (), most={0: 9, 1: 4})
    assert sizes(work) == [(0, 5, 5), (0, 5, 5), (1, 3, 4), (1, 3, 4), (1, 4, 4)]
    assert [unit.rows.tolist() for unit in work[2:]] == [[0, 1, 2], [3, 4, 5], [6, 7, 8, 9]]
    few = {whole.identities[m] for m in whole.groups[0].members[1:7]}
    work = units(whole, few, most=5)
    assert sizes(work) == [(0, 4, 4), (1, 5, 5), (1, 5, 5)]
    assert work[0].rows.tolist() == [0, 7, 8, 9]
    assert sizes(units(whole, few, most=5, at_least=4)) == [(0, 4, 4), (1, 3, 4), (1, 3, 4), (1, 4, 4)]
    assert sizes(units(whole, few, most=5, at_least=5))[:2] == [(0, 2, 2), (0, 2, 2)]
    assert sizes(units(whole, few, most=5, at_least=99)) == [(0, 1, 1)] * 4 + [(1, 1, 1)] * 10
    none = {whole.identities[m] for m in (*whole.groups[0].members, *whole.groups[1].members[4:])}
    assert sizes(units(whole, none, most=9)) == [(1, 4, 4)]
    assert sizes(units(whole, none, most=9, at_least=2)) == [(1, 2, 2), (1, 2, 2)]
    assert units(whole, whole.identities, most=9, at_least=2) == []


def test_processes_take_units_in_turn():
    assert [share("abcdefgh", index, 3) for index in (1, 2, 3)] == [list("adg"), list("beh"), list("cf")]


def test_a_chunks_name_is_a_digest_of_its_runs_identities():
    """A study that goes on finds its chunks by these names."""
    found = plan(3)
    chunk = cut(Unit(found.groups[0], np.array([0, 2]), 2), 2, 4)[0]
    runs = [found.identities[found.groups[0].members[row]] for row in (0, 2)]
    assert name_of(found, chunk) == hashlib.sha256(" ".join(runs).encode()).hexdigest()[:16]
