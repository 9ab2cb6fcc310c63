"""Units, shares and chunks: every unfinished run is played by exactly one process, in chunks of one width."""

from hypothesis import given
from hypothesis import strategies as st

from pausejax.engine.schedule import Unit, cut, identity, share, units
from pausejax.study.plan import Group, make_plan
from pausejax.study.spec import parse


def plan(seeds, **axes):
    policies = [{"name": "pause"}, {"name": "random"}]
    return make_plan(parse({"mode": "bandit", "rounds": 5, "seeds": seeds, "policy": policies, **axes}))


@given(
    seeds=st.integers(1, 30),
    static=st.integers(1, 3),
    most=st.integers(1, 40),
    count=st.integers(1, 12),
    settled=st.sets(st.integers(0, 200)),
    width=st.integers(1, 9),
)
def test_shares_cover_every_unfinished_run_once(seeds, static, most, count, settled, width):
    found = plan(seeds, network={"num_clients": list(range(8, 8 + static))})
    work = units(found, settled, most=most, at_least=count)
    left = set(range(len(found.runs))) - settled
    assert len(work) >= min(count, len(left))
    assert all(len(unit.members) <= min(most, unit.width) for unit in work)
    played = [
        member
        for number in range(1, count + 1)
        for unit in share(work, number, count)
        for chunk in cut(unit, (), width, width + 2)
        for member in chunk.members
    ]
    assert sorted(played) == sorted(left)


@given(members=st.integers(1, 300), width=st.integers(1, 90), killed_after=st.integers(0, 20))
def test_a_killed_unit_goes_on_with_the_very_chunks_that_it_had(members, width, killed_after):
    unit = Unit(Group("pause", {}, tuple(range(members))), tuple(range(members)), members)
    chunks = cut(unit, (), width, width)
    finished = {member for chunk in chunks[:killed_after] for member in chunk.members}
    assert cut(unit, finished, width, width) == chunks[killed_after:]


def test_a_chunk_is_filled_up_with_its_last_run():
    (chunk,) = cut(Unit(Group("pause", {}, (4, 7, 9)), (4, 7, 9), 3), {4}, 3, 4)
    assert chunk.positions == (7, 9, 9, 9) and chunk.lanes == 2 and chunk.members == (7, 9)


def test_a_chunk_is_named_by_its_runs_alone():
    one, two = plan(3), plan(6)
    names = [
        identity([run.identity(found.study) for run in found.runs], cut(unit, (), 3, 3)[0])
        for found in (one, two)
        for unit in units(found, (), most=3)[:1]
    ]
    assert names[0] == names[1]
