"""Cuts a plan into batches of runs that are played together."""

import itertools
from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

from pausejax.study.runs import Group, Run
from pausejax.study.study import Plan


class Batch(NamedTuple):
    """Runs of one group that are played together."""

    group: Group
    runs: tuple[Run, ...]
    largest_batch: int
    """Number of runs of the group's largest batch when the group was cut.

    One program plays all batches of the group. Its width is at most this number:
    `LocalExecutor.first_width`.
    """

    @property
    def identities(self) -> tuple[str, ...]:
        """The identities of the batch's runs, in order."""
        return tuple(run.identity for run in self.runs)


def groups_left(plan: Plan, left_out: Collection[str]) -> list[Group]:
    """Returns the groups with at least one run whose identity is not in `left_out`."""
    known = frozenset(left_out)
    return [group for group in plan.groups if not known.issuperset(run.identity for run in group.runs)]


def batches(
    plan: Plan, left_out: Collection[str], max_runs: Mapping[str, int], min_batches: int = 1
) -> list[Batch]:
    """Cuts every group into batches of nearly equal size.

    No argument changes while processes play the study. So all processes make the same cut.

    Args:
      plan: the whole plan.
      left_out: identities of the runs that are left out, `Contents.left_out`.
      max_runs: the largest number of runs of a batch, by the key of each group that has runs left.
      min_batches: the least number of batches of the whole plan. If the plan has fewer runs left, each run is
        a batch. To reach this number, the group with the largest batches gets one more batch, repeatedly.
    """
    known = set(left_out)
    left = [tuple(run for run in group.runs if run.identity not in known) for group in plan.groups]
    counts = [
        -(-len(runs) // max_runs[group.key]) if runs else 0
        for group, runs in zip(plan.groups, left, strict=True)
    ]
    while sum(counts) < min(min_batches, sum(map(len, left))):
        largest = max(range(len(counts)), key=lambda g: len(left[g]) / counts[g] if counts[g] else 0)
        counts[largest] += 1
    cut = []
    for group, runs, count in zip(plan.groups, left, counts, strict=True):
        if runs:
            ends = [len(runs) * part // count for part in range(count + 1)]
            largest_batch = -(-len(runs) // count)
            cut += [Batch(group, runs[a:b], largest_batch) for a, b in itertools.pairwise(ends)]
    return cut


def of_shard(work: Sequence[Batch], index: int, count: int) -> list[Batch]:
    """Returns the batches of shard `index`, 1 to `count`. Each shard is played by one process."""
    return list(work[index - 1 :: count])


def unfinished(work: Sequence[Batch], finished: Collection[str]) -> list[Batch]:
    """Returns the batches without their finished runs, and without batches that become empty.

    Args:
      work: the batches.
      finished: the identities of the finished runs.
    """
    known = set(finished)
    left = []
    for batch in work:
        if runs := tuple(run for run in batch.runs if run.identity not in known):
            left.append(batch._replace(runs=runs))
    return left


def split(batch: Batch, width: int) -> list[Batch]:
    """Cuts a batch into consecutive batches of at most `width` runs.

    A killed study that resumes gets equal batches, so its numbers are equal too.
    """
    runs = batch.runs
    return [batch._replace(runs=runs[first : first + width]) for first in range(0, len(runs), width)]
