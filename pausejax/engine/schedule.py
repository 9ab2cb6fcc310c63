"""Who simulates what: units of runs that one process takes whole, and the chunks that a unit is cut into.

Within a group a run has one index, its row. Outside, its identity names it.
"""

import hashlib
import itertools
from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from pausejax.study.study import Group, Plan


class Unit(NamedTuple):
    """Runs of one group that belong to one process: the share of a batch job, the task of a worker."""

    group: Group
    rows: np.ndarray
    """int [n], ascending."""
    width: int
    """The most rows that any unit of this group has."""

    def without(self, chunk: "Chunk") -> "Unit":
        """What is left of the unit when a chunk of it is done."""
        return self._replace(rows=self.rows[~np.isin(self.rows, chunk.members)])


class Chunk(NamedTuple):
    """Runs of one group that are simulated side by side."""

    group: Group
    rows: np.ndarray
    """int [width], the last one repeated as padding."""
    members: np.ndarray
    """int [n], the same without the padding."""


def identities_of(plan: Plan, group: Group, rows: np.ndarray) -> list[str]:
    """The identities of some rows of a group."""
    return [plan.identities[group.members[row]] for row in rows]


def units(
    plan: Plan, settled: Collection[str], *, most: int | Mapping[int, int], at_least: int = 1
) -> list[Unit]:
    """Cuts every group into units of nearly one size.

    The cut depends on nothing that changes while processes work on the study, so all of them agree on it.

    Args:
      plan: the whole plan.
      settled: identities of runs whose results were there before anybody began; they are left out.
      most: the most runs of a unit; or by the numbers of all groups that have runs left.
      at_least: so many units or more, as long as there are as many runs; units of many runs are cut first.
    """
    known = set(settled)
    left = [
        np.array([row for row, m in enumerate(group.members) if plan.identities[m] not in known], int)
        for group in plan.groups
    ]
    parts = [
        -(-len(rows) // (most if isinstance(most, int) else most[group.number])) if len(rows) else 0
        for group, rows in zip(plan.groups, left, strict=True)
    ]
    while sum(parts) < min(at_least, sum(map(len, left))):
        largest = max(range(len(parts)), key=lambda g: len(left[g]) / parts[g] if parts[g] else 0)
        parts[largest] += 1
    found = []
    for group, rows, count in zip(plan.groups, left, parts, strict=True):
        if len(rows):
            ends = [len(rows) * part // count for part in range(count + 1)]
            width = -(-len(rows) // count)
            found += [Unit(group, rows[a:b], width) for a, b in itertools.pairwise(ends)]
    return found


def share(work: Sequence[Unit], index: int, count: int) -> list[Unit]:
    """The units of process `index` of `count`, 1-based."""
    return list(work[index - 1 :: count])


def unfinished(plan: Plan, work: Sequence[Unit], finished: Collection[str]) -> list[Unit]:
    """The units without the runs whose identities are known as finished; empty ones are left out."""
    known = set(finished)
    found = []
    for unit in work:
        rows = [row for row in unit.rows if plan.identities[unit.group.members[row]] not in known]
        if rows:
            found.append(unit._replace(rows=np.array(rows, int)))
    return found


def cut(unit: Unit, width: int, padded_width: int) -> list[Chunk]:
    """The chunks of a unit, all of one padded width.

    A study that goes on after it was killed gets the very chunks that it had left, and so the very numbers.
    """
    found = []
    for first in range(0, len(unit.rows), width):
        members = unit.rows[first : first + width]
        rows = np.pad(members, (0, padded_width - len(members)), mode="edge")
        found.append(Chunk(unit.group, rows, members))
    return found


def name_of(plan: Plan, chunk: Chunk) -> str:
    """Names a chunk by the runs in it: padding differs with the devices, and with where data lie."""
    text = " ".join(identities_of(plan, chunk.group, chunk.members))
    return hashlib.sha256(text.encode()).hexdigest()[:16]
