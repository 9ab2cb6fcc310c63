"""When rounds close and who counts: against an event queue, without a line of the package."""

import heapq
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from pausejax import network, parts
from pausejax.network import Close, Ending, Work, checked_ending
from pausejax.parts import PartError

SLOTS, M = 6, 3
rng = np.random.default_rng(0)


def cohorts(count, ties=False):
    """Clients in slots, some empty; latencies, of which some are equal; who fails."""
    client = np.where(rng.random((count, SLOTS)) < 0.8, np.arange(SLOTS), -1)
    client[0], client[1, 1:] = -1, -1
    latency = rng.gamma(2.0, 1.0, (count, SLOTS)).astype(np.float32)
    if ties:
        latency = np.ceil(latency)
    return client.astype(np.int32), latency, rng.random((count, SLOTS)) < 0.3


def queue(client, latency, fails, needed, limit=math.inf):
    """Events in their order: the round ends once enough have delivered, or at the limit."""
    events = [(float(latency[slot]), slot) for slot in range(SLOTS) if client[slot] >= 0]
    delivering = sum(not fails[slot] for _, slot in events)
    heapq.heapify(events)
    needed = needed if delivering >= needed else math.inf
    counts, now = [], 0.0
    while events and len(counts) < needed and events[0][0] <= limit:
        now, slot = heapq.heappop(events)
        if not fails[slot]:
            counts.append(slot)
    # Of those who deliver in the same moment the lower slots come first.
    ends = min(limit, now) if not events or len(counts) >= needed else limit
    return ends, sorted(counts)


def closed(ending, client, latency, fails):
    close = jax.jit(jax.vmap(lambda *work: ending.close(Work(*work))))
    made = close(*map(jnp.asarray, (client, latency, fails, np.zeros_like(client))))
    return np.asarray(made.duration), np.asarray(made.counts)


@pytest.mark.parametrize("ties", [False, True])
@pytest.mark.parametrize(
    ("ending", "needed", "limit"),
    [
        (network.all_clients(), math.inf, math.inf),
        (network.deadline(round_deadline=2.0), math.inf, 2.0),
        (network.deadline(round_deadline=1e6), math.inf, math.inf),
        (network.first(clients_per_round=M, num_clients=20, extra_clients=SLOTS - M), M, math.inf),
        (network.first(clients_per_round=1, num_clients=20, extra_clients=SLOTS - 1), 1, math.inf),
    ],
)
def test_rounds_close_as_an_event_queue_says(ending, needed, limit, ties):
    work = cohorts(500, ties)
    durations, counts = closed(ending, *work)
    for place, (client, latency, fails) in enumerate(zip(*work, strict=True)):
        ends, who = queue(client, latency, fails, needed, limit)
        assert durations[place] == pytest.approx(ends)
        assert np.flatnonzero(counts[place]).tolist() == who


@pytest.mark.parametrize(("extra", "clients", "chooses"), [(0, 20, 5), (2, 20, 7), (9, 8, 8)])
def test_the_first_are_of_a_larger_cohort_but_of_no_more_than_there_are(extra, clients, chooses):
    ending = network.first(clients_per_round=5, num_clients=clients, extra_clients=extra)
    assert ending.chooses == chooses and not ending.waits_for_all


def test_without_more_than_count_the_first_are_all():
    work = cohorts(100)
    every = closed(network.all_clients(), *work)
    some = network.first(clients_per_round=SLOTS, num_clients=20, extra_clients=0)
    for one, other in zip(every, closed(some, *work), strict=True):
        np.testing.assert_array_equal(one, other)


def part_of(function):
    with parts.collecting():
        parts.ending(function)
        return parts.find("ending", function.__name__)


@pytest.mark.parametrize(
    ("made", "said"),
    [
        (None, "must return a pausejax.network.Ending, not NoneType"),
        (Ending(lambda work: None), "close must return a pausejax.network.Close"),
        (Ending(lambda work: Close(work.latency, work.fails)), r"duration is float32 \[6\]; must be float32"),
        (
            Ending(lambda work: Close(jnp.float32(1), work.fails[:2])),
            r"counts is bool \[2\]; must be bool \[6\]",
        ),
        (Ending(lambda work: Close(jnp.float32(1), work.fails), chooses=0), "chooses must be None or an"),
    ],
)
def test_an_ending_of_ones_own_is_checked_in_its_name(made, said):
    def mine() -> Ending:
        """Mine."""
        return made

    part = part_of(mine)
    work = Work(*(jnp.asarray(one[0]) for one in cohorts(2)), age=jnp.zeros_like(cohorts(2)[0][0]))
    with pytest.raises(PartError, match=said) as mistake:
        checked_ending(made, part).close(work)
    assert "mine" in str(mistake.value)


def test_who_delivers_nothing_never_counts():
    def greedy() -> Ending:
        """Everybody, there or not."""
        return Ending(lambda work: Close(jnp.float32(1), jnp.ones(SLOTS, bool)))

    client, latency, fails = cohorts(50)
    _, counts = closed(checked_ending(greedy(), part_of(greedy)), client, latency, fails)
    np.testing.assert_array_equal(counts, (client >= 0) & ~fails)
