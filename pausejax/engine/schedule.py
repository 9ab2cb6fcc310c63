"""Who simulates what: units of runs that one process takes whole, and the chunks that a unit is cut into."""

import hashlib
import itertools
from collections.abc import Collection, Sequence
from typing import NamedTuple

from pausejax.study.plan import Group, Plan


class Unit(NamedTuple):
    """Runs of one group that belong to one process: the share of a batch job, the task of a worker."""

    group: Group
    members: tuple[int, ...]
    """Places in the plan's runs."""
    width: int
    """The most members that any unit of this group has."""


class Chunk(NamedTuple):
    """Runs of one group that are simulated side by side."""

    group: Group
    positions: tuple[int, ...]
    """Places in the plan's runs; padded by repeating the last one."""
    lanes: int
    """How many of `positions` are no padding."""

    @property
    def members(self) -> tuple[int, ...]:
        """The positions without the padding."""
        return self.positions[: self.lanes]


def units(plan: Plan, settled: Collection[int], *, most: int, at_least: int = 1) -> list[Unit]:
    """Cuts every group into units of nearly one size.

    The cut depends on nothing that changes while processes work on the study, so all of them agree on it.

    Args:
      plan: the whole plan.
      settled: places of runs whose results were there before anybody began; they are left out.
      most: the most runs of a unit.
      at_least: so many units or more, as long as there are as many runs; units of many runs are cut first.
    """
    members = [[m for m in group.members if m not in settled] for group in plan.groups]
    parts = [-(-len(runs) // most) for runs in members]
    while sum(parts) < min(at_least, sum(map(len, members))):
        largest = max(range(len(parts)), key=lambda g: len(members[g]) / parts[g] if parts[g] else 0)
        parts[largest] += 1
    found = []
    for group, runs, count in zip(plan.groups, members, parts, strict=True):
        if runs:
            ends = [len(runs) * part // count for part in range(count + 1)]
            width = -(-len(runs) // count)
            found += [Unit(group, tuple(runs[a:b]), width) for a, b in itertools.pairwise(ends)]
    return found


def share(work: Sequence[Unit], index: int, count: int) -> list[Unit]:
    """The units of process `index` of `count`, 1-based."""
    return list(work[index - 1 :: count])


def cut(unit: Unit, finished: Collection[int], width: int, padded_width: int) -> list[Chunk]:
    """The chunks of a unit's unfinished runs, all of one padded width.

    A study that goes on after it was killed gets the very chunks that it had left, and so the very numbers.
    """
    left = [member for member in unit.members if member not in finished]
    found = []
    for first in range(0, len(left), width):
        members = tuple(left[first : first + width])
        found.append(Chunk(unit.group, members + members[-1:] * (padded_width - len(members)), len(members)))
    return found


def identity(identities: Sequence[str], chunk: Chunk) -> str:
    """Names a chunk by the runs in it, padding and all."""
    text = " ".join(identities[position] for position in chunk.positions)
    return hashlib.sha256(text.encode()).hexdigest()[:16]
