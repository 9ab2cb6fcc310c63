"""A search that workers share: however many there are and whichever die, it is the search of one process."""

import contextlib
import functools
import types

import numpy as np
import pytest

from pausejax import kinds
from pausejax.cluster import pool as ray_pool
from pausejax.cluster.searching import RayPlayer, SearchWorker
from pausejax.cluster.worker import Slot
from pausejax.data.host import Sources
from pausejax.engine.stopping import NEVER
from pausejax.searches.find import search
from pausejax.searches.options import Options
from pausejax.searches.player import LocalPlayer
from pausejax.searches.programs import Programs
from pausejax.study.spec import SpecError

BANDIT = {
    "mode": "bandit",
    "rounds": 75,
    "seeds": 2,
    "network": {"num_clients": 8, "clients_per_round": 2},
    "reward": {"generalization_weight": {"log_uniform": [1, 1000]}, "privacy_weight": [1.0, 5.0, 25.0]},
    "policy": [{"name": "pause"}, {"name": "sa_pause", "annealing_steps": 20}],
}
ASKED = Options(budget=9000, metrics=("cumulative_pseudo_regret",), most=64, reduction=3.0)


class Hands:
    """A pool of workers in this process; those of whose calls a test says so die at them and are replaced."""

    def __init__(self, make, count, deaths=()):
        self.make, self.deaths, self.calls = make, set(deaths), 0
        self.slots = [Slot("node", number, count, 1, 0) for number in range(count)]
        self.members = [self._member(slot) for slot in self.slots]

    def _member(self, slot):
        worker = self.make(slot)

        class Actor:
            def __getattr__(self, name):
                method = getattr(worker, name)
                return types.SimpleNamespace(remote=lambda *arguments: (method, arguments))

            begin = types.SimpleNamespace(remote=lambda: None)

        member = ray_pool.Member(Actor(), slot)
        member.answer, member.ready = None, True
        return member

    def ready(self):
        return list(self.members)

    def idle(self):
        return [member for member in self.members if member.answer is None]

    def working(self):
        return [member for member in self.members if member.task is not None]

    def wait(self, _):
        """One answer; the last that was asked answers first."""
        for member in reversed(self.members):
            if member.answer is not None:
                self.calls += 1
                (method, arguments), member.answer = member.answer, None
                if self.calls in self.deaths:
                    place = self.members.index(member)
                    self.members[place] = self._member(member.slot)
                    return [(member, ray_pool.Lost("it was killed"))]
                return [(member, method(*arguments))]
        return []


def played(count=0, deaths=(), document=BANDIT):
    """By so many workers; 0: by this process, with lanes cut as for workers."""

    @contextlib.contextmanager
    def players(space, goal, options, sources):
        if not count:
            yield LocalPlayer(goal, Programs(space, sources, options), options, shared=True)
            return
        make = functools.partial(SearchWorker, space, goal, options, {}, None)
        hands = Hands(make, count, deaths)
        yield RayPlayer(hands, NEVER)
        assert not deaths or hands.calls > max(deaths), "nobody has died"

    return search(kinds.parse(document, searched=True), ASKED, Sources(), players=players)


@pytest.fixture(scope="module")
def alone():
    return played()


@pytest.mark.parametrize(
    ("count", "deaths"), [(1, ()), (3, ()), (2, (3, 4, 9, 17, 18)), (8, (5,))], ids=["1", "3", "2 die", "8"]
)
def test_neither_the_number_of_workers_nor_their_deaths_change_a_search(alone, count, deaths):
    shared = played(count, deaths)
    assert [one[:3] for one in shared.ended] == [one[:3] for one in alone.ended]
    assert (shared.spent, shared.lane_rounds) == (alone.spent, alone.lane_rounds)
    for name, variable in alone.result.data_vars.items():
        np.testing.assert_array_equal(shared.result[name].values, variable.values, err_msg=name)


def test_workers_that_die_time_and_again_end_it():
    with pytest.raises(ChildProcessError, match="5 workers in a row were lost at it; the last: it was"):
        played(1, range(2, 7))


def test_what_cannot_be_built_is_said_by_the_first_worker():
    fed = {**BANDIT, "network": {"num_clients": 8, "clients_per_round": 2, "latency": "trace"}}
    fed["network"]["trace_file"] = "missing.csv"
    with pytest.raises((SpecError, OSError), match=r"missing\.csv"):
        played(2, document=fed)
