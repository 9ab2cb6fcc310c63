"""What may lie on a device in several ways, which differ in speed alone, and which of them is the fastest."""

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import jax

Layout = Mapping[str, int | str]
"""How something lies on a device: values by name."""

_GAIN = 0.03
"""What a change has to bring, as a share of the time: less is noise."""
_REPEATS = 5
_ENOUGH_SECONDS = 0.4


class Trials(NamedTuple):
    """What can be tried."""

    start: Layout
    options: Mapping[str, Sequence[int | str]]
    """By name, in an order in which neighbours are alike; the start's value is among them."""
    seconds: Callable[[Layout], float]
    """What a round of a run takes; infinite where it can't be played."""


class Variants(NamedTuple):
    """What of a group's programs may lie on a device in several ways."""

    key: str
    """All that the fastest of them depends on, besides device and versions."""
    trials: Callable[[], Trials]
    sound: Callable[[Layout], bool]
    """Whether something that was read from a file is a layout at all."""


class Found(NamedTuple):
    """The fastest of those that were tried."""

    layout: Layout
    tried: Mapping[tuple[int | str, ...], float]
    """Seconds by the values of a layout."""


def descend(
    trials: Trials, allowed: float, clock: Callable[[], float] = time.monotonic, gain: float = _GAIN
) -> Found:
    """Changes one value after the other, to its neighbours, as long as that makes a round faster.

    Args:
      trials: what can be tried.
      allowed: seconds of the clock; nothing is tried that, taking as long as the dearest one before it, would
        end later. The start is tried in any case.
      clock: tells the time, seconds.
      gain: the share of the time that a change has to bring.
    """
    begun, dearest = clock(), 0.0
    tried: dict[tuple[int | str, ...], float] = {}

    def seconds(layout: Layout) -> float:
        nonlocal dearest
        key = tuple(layout.values())
        if key not in tried:
            before = clock()
            tried[key] = trials.seconds(layout)
            dearest = max(dearest, clock() - before)
        return tried[key]

    best = dict(trials.start)
    least, moved = seconds(best), True
    while moved:
        moved = False
        for name, values in trials.options.items():
            for step in (1, -1):
                place = values.index(best[name]) + step
                while 0 <= place < len(values):
                    if clock() - begun + dearest > allowed:
                        return Found(best, tried)
                    other = {**best, name: values[place]}
                    if seconds(other) >= least * (1 - gain):
                        break
                    best, least, moved = other, seconds(other), True
                    place += step
    return Found(best, tried)


def best_of(call: Callable[..., Any], prepare: Callable[[], Sequence[Any]] = tuple) -> float:
    """The least seconds that a call on the local devices takes, of a few, after a first one.

    On a CPU seconds of all its cores, which do not suffer from what else runs there; else of the wall.

    Args:
      call: returns arrays.
      prepare: makes its arguments anew each time; not counted.
    """
    on_cpu = jax.default_backend() == "cpu"
    clock = time.process_time if on_cpu else time.perf_counter
    jax.block_until_ready(call(*prepare()))
    taken: list[float] = []
    while not taken or (len(taken) < _REPEATS and sum(taken) < _ENOUGH_SECONDS):
        arguments = jax.block_until_ready(prepare())
        begun = clock()
        jax.block_until_ready(call(*arguments))
        taken.append(clock() - begun)
    return min(taken)
