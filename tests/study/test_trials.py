"""Which layout is chosen, by timings that are made up."""

import math

import pytest

from pausejax.study.trials import Trials, best_of, descend

OPTIONS = {"lanes": (1, 2, 4, 8, 16), "batch": (20, 50, 100), "conv": ("im2col", "lax")}
START = {"lanes": 4, "batch": 50, "conv": "im2col"}


class Device:
    """A clock that only trials advance, each by `cost`; a round takes what `law` says."""

    def __init__(self, law, cost=1.0):
        self.law, self.cost, self.now, self.tried = law, cost, 0.0, []

    def seconds(self, layout):
        self.now += self.cost
        self.tried.append(dict(layout))
        return self.law(layout)

    def descend(self, allowed=math.inf, start=START, options=OPTIONS):
        return descend(Trials(start, options, self.seconds), allowed, lambda: self.now)


def bowl(lanes, batch, conv):
    """Fastest at one place; every step away from it costs half as much again."""

    def law(layout):
        off = abs(math.log2(layout["lanes"] / lanes))
        off += abs(OPTIONS["batch"].index(layout["batch"]) - OPTIONS["batch"].index(batch))
        return 1.5 ** (off + (layout["conv"] != conv))

    return law


@pytest.mark.parametrize("best", [(1, 20, "lax"), (16, 100, "im2col"), (4, 50, "im2col"), (8, 20, "lax")])
def test_the_fastest_is_found_wherever_it_is_and_nothing_is_timed_twice(best):
    device = Device(bowl(*best))
    found = device.descend()
    assert tuple(found.layout.values()) == best
    assert len(device.tried) == len(found.tried) <= 14 and device.tried[0] == START
    assert min(found.tried, key=found.tried.get) == best


def test_two_values_that_help_only_together_are_found_in_a_second_pass():
    def law(layout):
        return 1.0 if layout["batch"] == 50 else 0.9 if layout["lanes"] == 4 else 0.5

    # Lanes alone bring nothing, so they are looked at again after the batch, which comes later.
    assert Device(law).descend().layout == {"lanes": 8, "batch": 100, "conv": "im2col"}


def test_what_gains_less_than_noise_changes_nothing():
    assert Device(lambda layout: 1.0 - 0.001 * layout["lanes"]).descend().layout == START


def test_what_cannot_be_played_is_passed_over():
    assert Device(lambda layout: math.inf if layout["lanes"] > 2 else 1.0).descend().layout["lanes"] == 2


def test_time_that_is_up_ends_the_search_with_the_best_so_far():
    for allowed in (0.0, 1.0, 2.5, 4.0):
        device = Device(bowl(16, 100, "lax"), cost=1.0)
        found = device.descend(allowed)
        assert len(device.tried) == max(int(allowed), 1) and device.now <= max(allowed, 1.0)
        assert found.layout == min(device.tried, key=device.law)


def test_a_layout_with_nothing_to_choose_is_timed_once():
    found = Device(lambda _: 1.0).descend(options={"lanes": (4,)})
    assert found.layout == START and len(found.tried) == 1


def test_calls_are_timed_with_fresh_arguments_after_one_that_is_not_counted():
    made, seen = iter(range(100)), []
    assert best_of(seen.append, lambda: (next(made),)) >= 0
    assert seen == list(range(len(seen))) and 2 <= len(seen) <= 6
