"""Counts launches, graphs, synchronisations, bytes and FLOPs of a round, and estimates its time.

The thunks say what is launched and in which graph. The HLO says how often a loop iterates and which bytes a
kernel moves. Both list loops and conditionals in the same order. If XLA does not know the number of
iterations of a loop, the case gives it for the loop's place in the program. Of a conditional, the most
expensive branch counts.
"""

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from gpu_model.hlo import FREE, Instruction, Module, Work, kernel_name
from gpu_model.targets import HIGH, LOW, MIDDLE, REACHED, Costs, Target
from gpu_model.thunks import CHOICE, GRAPH, LOOP, SLICED, Thunk


@dataclass
class Counts:
    """Counts of some thunks."""

    launches: float = 0.0
    in_graphs: float = 0.0
    graphs: float = 0.0
    syncs: float = 0.0
    bytes: float = 0.0
    flops: float = 0.0
    work: float = 0.0
    """Seconds of memory traffic and products, without launch costs."""
    seconds: list[float] = field(default_factory=lambda: [0.0, 0.0, 0.0])
    """Seconds with low, middle and high launch costs."""

    def add(self, other: "Counts", times: float = 1.0) -> None:
        for name in ("launches", "in_graphs", "graphs", "syncs", "bytes", "flops", "work"):
            setattr(self, name, getattr(self, name) + times * getattr(other, name))
        self.seconds = [a + times * b for a, b in zip(self.seconds, other.seconds, strict=True)]


class Kernel(NamedTuple):
    """Kernel with the number of its launches in a round."""

    times: float
    seconds: float
    name: str


class Counting:
    """Counts one program for one device.

    Args:
      module: the HLO of the program. target: the device. trips: the number of executions of loops and
      conditionals for which XLA knows none, by a pattern of their
        source; the first pattern that fits is used.
      precision: the precision of the matrix products.
    """

    def __init__(
        self, module: Module, target: Target, trips: Mapping[str, float], precision: str = "highest"
    ) -> None:
        self._module, self._trips = module, trips
        self._bandwidth = target.bandwidth * REACHED["bandwidth"]
        self._peak = target.peak[precision] * REACHED[precision]
        self.kernels: list[Kernel] = []
        self.unknown: Counter[str] = Counter()
        """Loops and conditionals that no pattern fits. One iteration of each is counted."""

    def count(self, thunks: list[Thunk]) -> Counts:
        """Returns the counts of the whole program."""
        return self._sequence(thunks, self._module.entry, 1.0, inside=False)

    def _sequence(self, thunks: list[Thunk], computation: str, times: float, *, inside: bool) -> Counts:
        total = Counts()
        control = iter(self._control(computation))
        copies = iter(self._copies(computation))
        self._add(thunks, total, control, copies, times, inside)
        left = next(control, None)
        if left is not None:
            raise ValueError(f"{computation}: no thunk for {left.name}")
        return total

    def _add(self, thunks, total: Counts, control, copies, times: float, inside: bool) -> None:
        for thunk in thunks:
            if thunk.kind == GRAPH:
                total.graphs += 1
                total.seconds = [a + c.graph for a, c in zip(total.seconds, (LOW, MIDDLE, HIGH), strict=True)]
                self._add(thunk.regions[""], total, control, copies, times, True)
            elif thunk.kind == SLICED:
                self._add(thunk.regions[""], total, control, copies, times, inside)
            elif thunk.kind == LOOP:
                self._loop(thunk, next(control), total, times, inside)
            elif thunk.kind == CHOICE:
                self._choice(thunk, next(control), total, times, inside)
            else:
                copied = next(copies, Work(0, 0)) if thunk.kind == "kCopy" else Work(0, 0)
                self._kernel(self._module.work.get(thunk.name, copied), thunk, total, times, inside)

    def _kernel(self, work: Work, thunk: Thunk, total: Counts, times: float, inside: bool) -> None:
        seconds = max(work.bytes / self._bandwidth, work.flops / self._peak)
        self.kernels.append(Kernel(times, seconds, thunk.name))
        costs: tuple[Costs, ...] = (LOW, MIDDLE, HIGH)
        each = [max(c.node if inside else c.alone, seconds) for c in costs]
        total.add(Counts(1, inside, 0, 0, work.bytes, work.flops, seconds, each))

    def _loop(self, thunk: Thunk, loop: Instruction, total: Counts, times: float, inside: bool) -> None:
        trips = loop.trips if loop.trips is not None else self._known(loop)
        condition, body = loop.called
        total.add(self._sequence(thunk.regions["body"], body, times * trips, inside=inside), trips)
        if loop.trips is None:
            seen = thunk.regions.get("condition", [])
            total.add(self._sequence(seen, condition, times * (trips + 1), inside=inside), trips + 1)
            self._wait(total, 0 if inside else trips + 1)

    def _choice(self, thunk: Thunk, choice: Instruction, total: Counts, times: float, inside: bool) -> None:
        share = self._known(choice)
        found, kept = [], len(self.kernels)
        for branch, called in zip(thunk.regions.values(), choice.called, strict=True):
            found.append((self._sequence(branch, called, times * share, inside=inside), self.kernels[kept:]))
            del self.kernels[kept:]
        dearest, kernels = max(found, key=lambda pair: pair[0].seconds[1])
        self.kernels += kernels
        total.add(dearest, share)
        self._wait(total, 0 if inside else 1)

    def _wait(self, total: Counts, syncs: float) -> None:
        waits = [syncs * c.sync for c in (LOW, MIDDLE, HIGH)]
        total.add(Counts(syncs=syncs, seconds=waits))

    def _known(self, instruction: Instruction) -> float:
        for pattern, count in self._trips.items():
            if re.search(pattern, instruction.source):
                return count
        self.unknown[f"{instruction.operation} {instruction.source}"] += 1
        return 1.0

    def _control(self, computation: str) -> list[Instruction]:
        """Returns the loops and conditionals of a computation in order, including those that it calls."""
        found = []
        for instruction in self._module.computations[computation]:
            if instruction.operation in ("while", "conditional"):
                found.append(instruction)
            elif instruction.operation in ("call", "async-start"):
                found += [c for name in instruction.called for c in self._control(name)]
        return found

    def _copies(self, computation: str) -> list[Work]:
        body = self._module.computations[computation]
        names = (i.name for i in body if i.operation in ("copy", "copy-start") and i.operation not in FREE)
        return [self._module.work[kernel_name(name)] for name in names]
