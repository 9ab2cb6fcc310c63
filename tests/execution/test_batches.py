"""Batches and shares: every unfinished run is played by exactly one process, in batches of one width."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pausejax.execution.batches import batches, of_shard, split, unfinished
from pausejax.kinds import parse
from pausejax.study.plan import make_plan


def plan(seeds, **axes):
    policies = [{"name": "pause"}, {"name": "random"}]
    return make_plan(parse({"mode": "bandit", "rounds": 5, "seeds": seeds, "policy": policies, **axes}))


def cut(plan, in_result, most, **more):
    """With the same number of runs for every group."""
    return batches(plan, in_result, {group.key: most for group in plan.groups}, **more)


@pytest.mark.slow
@given(
    seeds=st.integers(1, 30),
    static=st.integers(1, 3),
    most=st.integers(1, 40),
    count=st.integers(1, 12),
    in_result=st.sets(st.integers(0, 200)),
    finished=st.sets(st.integers(0, 200)),
    width=st.integers(1, 9),
)
@settings(deadline=None)
def test_shares_cover_every_unfinished_run_once(seeds, static, most, count, in_result, finished, width):
    whole = plan(seeds, network={"num_clients": list(range(8, 8 + static))})
    named = lambda places: {whole.identities[p] for p in places if p < len(whole.runs)}  # noqa: E731
    work = cut(whole, named(in_result), most, min_batches=count)
    left = set(whole.identities) - named(in_result)
    assert len(work) >= min(count, len(left))
    assert all(len(batch.runs) <= min(most, batch.largest_batch) for batch in work)
    played = [
        identity
        for number in range(1, count + 1)
        for batch in unfinished(of_shard(work, number, count), named(finished))
        for piece in split(batch, width)
        for identity in piece.identities
    ]
    assert sorted(played) == sorted(left - named(finished))


@given(seeds=st.integers(1, 300), width=st.integers(1, 90), killed_after=st.integers(0, 20))
@settings(deadline=None, max_examples=30)
def test_a_killed_batch_goes_on_with_the_very_pieces_that_it_had(seeds, width, killed_after):
    batch, _ = cut(plan(seeds), (), 300)
    pieces = split(batch, width)
    done = {identity for piece in pieces[:killed_after] for identity in piece.identities}
    rest = [piece for left in unfinished([batch], done) for piece in split(left, width)]
    assert [piece.identities for piece in rest] == [piece.identities for piece in pieces[killed_after:]]


def test_batches_are_of_nearly_one_size_and_large_groups_are_cut_first():
    """Two groups of ten runs; then ten, or none, and four that are left."""
    whole = plan(10)
    first, second = whole.groups

    def sizes(work):
        return [((first, second).index(batch.group), len(batch.runs), batch.largest_batch) for batch in work]

    assert sizes(cut(whole, (), 40)) == [(0, 10, 10), (1, 10, 10)]
    assert sizes(cut(whole, (), 10)) == [(0, 10, 10), (1, 10, 10)]
    work = batches(whole, (), {first.key: 9, second.key: 4})
    assert sizes(work) == [(0, 5, 5), (0, 5, 5), (1, 3, 4), (1, 3, 4), (1, 4, 4)]
    runs = second.runs
    assert [batch.runs for batch in work[2:]] == [runs[:3], runs[3:6], runs[6:]]
    few = {run.identity for run in first.runs[1:7]}
    work = cut(whole, few, 5)
    assert sizes(work) == [(0, 4, 4), (1, 5, 5), (1, 5, 5)]
    assert work[0].runs == (first.runs[0], *first.runs[7:])
    assert sizes(cut(whole, few, 5, min_batches=4)) == [(0, 4, 4), (1, 3, 4), (1, 3, 4), (1, 4, 4)]
    assert sizes(cut(whole, few, 5, min_batches=5))[:2] == [(0, 2, 2), (0, 2, 2)]
    assert sizes(cut(whole, few, 5, min_batches=99)) == [(0, 1, 1)] * 4 + [(1, 1, 1)] * 10
    none = {run.identity for run in (*first.runs, *second.runs[4:])}
    assert sizes(cut(whole, none, 9)) == [(1, 4, 4)]
    assert sizes(cut(whole, none, 9, min_batches=2)) == [(1, 2, 2), (1, 2, 2)]
    assert cut(whole, whole.identities, 9, min_batches=2) == []


def test_processes_take_batches_in_turn():
    assert [of_shard("abcdefgh", index, 3) for index in (1, 2, 3)] == [list("adg"), list("beh"), list("cf")]
