"""Finds the finished runs in a study's folder.

They are in files of `parts/` and in blocks of the result. Digests are checked.
"""

from collections.abc import Sequence
from typing import NamedTuple

from pausejax.results import blocks
from pausejax.results.blocks import ExpectedRuns, StoredRuns
from pausejax.results.exchange import result_name
from pausejax.results.folder import Folder
from pausejax.results.manifest import GONE
from pausejax.results.parts import examine as examine_part
from pausejax.results.parts import part_names


class Contents(NamedTuple):
    """Contents of a store: the finished runs of a study, and the damaged files."""

    parts: tuple[StoredRuns, ...] = ()
    blocks: tuple[StoredRuns, ...] = ()
    """The intact blocks of the result."""
    damaged: tuple[str, ...] = ()
    """Names of files that failed the check; their runs are not finished."""
    current: bool = False
    """Whether the result is intact and complete.

    It then has the plan's runs and spec, or all of the plan's runs and further runs.
    """
    whole: bool = True
    """Whether all blocks of the result are intact; True if there is no result."""
    result: str = ""
    """The SHA-256 of the result's manifest; "" if there is none, or if it is damaged."""
    removable: tuple[str, ...] = ()
    """Names of damaged parts, which can be removed."""
    left_out: frozenset[str] = frozenset()
    """Identities of runs in the result that are left out when the plan is cut into batches.

    All processes that play a plan must cut it into the same batches. So these are the runs that were in the
    result when the first of these processes began. Runs in parts are not left out.
    """

    @property
    def stored_runs(self) -> tuple[StoredRuns, ...]:
        return self.parts + self.blocks

    @property
    def identities(self) -> frozenset[str]:
        """The identities of all finished runs."""
        return identities_of(self.stored_runs)

    @property
    def in_result(self) -> frozenset[str]:
        """The identities of the runs in the result, without those that are only in parts."""
        return identities_of(self.blocks)


def identities_of(stored_runs: Sequence[StoredRuns]) -> frozenset[str]:
    return frozenset(identity for stored in stored_runs for identity in stored.identities)


def read(folder: Folder, expected: ExpectedRuns) -> Contents:
    """Reads all parts and all blocks of the result once to check them, and returns the contents.

    The fields `current` and `result` of the contents are not set.

    Args:
      folder: the folder of the study.
      expected: the runs of the study and their variables.

    Raises:
      OSError: the result can't be read, which does not mean that it is damaged.
    """
    parts: list[StoredRuns] = []
    in_result: list[StoredRuns] = []
    damaged: list[str] = []
    removable: list[str] = []
    for name in part_names(folder):
        try:
            parts.append(examine_part(folder, name, expected))
        except (ValueError, *GONE):
            damaged.append(name)
            removable.append(name)
        except OSError:  # a read error of the disk does not mean that the file is damaged
            damaged.append(name)
    unread = len(damaged)
    if (result := result_name(folder)) is not None:
        for stored in blocks.examine(folder, result, expected):
            in_result.append(stored) if isinstance(stored, StoredRuns) else damaged.append(stored)
    whole = len(damaged) == unread
    return Contents(tuple(parts), tuple(in_result), tuple(damaged), whole=whole, removable=tuple(removable))
