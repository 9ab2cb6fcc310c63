"""Reads the finished runs of a study that is still running, as its result would hold them.

Nothing in the study's folder changes, no lock is taken, and none of the user's own files is executed. Another
process may play at the same time. That process may build the result and remove parts while this module reads
them. The module then reads again; it makes at most five attempts.
"""

import time
from collections.abc import Sequence
from pathlib import Path

import xarray as xr

from pausejax.analysis import soundness
from pausejax.analysis.eval_times import with_eval_elapsed
from pausejax.results import blocks, contents, exchange, planned
from pausejax.results.blocks import ExpectedRuns
from pausejax.results.contents import Contents
from pausejax.results.folder import Folder
from pausejax.results.labels import Labels
from pausejax.study.study import Kind

_PAUSES = (0.0, 0.1, 0.5, 2.0, 5.0)
"""Seconds before each attempt to read the folder."""
_NAMED = 3


def read(directory: str | Path, kinds: Sequence[Kind]) -> xr.Dataset:
    """Reads the finished runs of a study into memory.

    Variables, coordinates, attributes and labels are those of the final result. The attribute `partial` says
    how many runs are finished. Dimensions such as `client` are as long as the finished runs need.

    Args:
      directory: the path or URL of the study's folder.
      kinds: every kind of study.

    Returns:
      The finished runs in the order of the plan. If the result holds all runs, it is opened by
      `exchange.read`, and has no attribute `partial`.

    Raises:
      FileNotFoundError: no run is finished, or the folder holds no study that can be read before its end.
      OSError: other processes changed the folder during each attempt, or a file can't be read.
      ValueError: the labels of the runs are damaged, or the result is.
    """
    folder, problem = Folder(directory), ""
    damaged: tuple[str, ...] = ()
    for pause in _PAUSES:
        time.sleep(pause)
        try:
            labels = planned.read(folder, kinds)
        except FileNotFoundError as error:
            # The result may be renamed between the two checks of `result_name`, so a second call is needed.
            if exchange.result_name(folder) or exchange.result_name(folder):
                return exchange.read(directory)
            what = f"no study with {exchange.LABELS}. A search can be read only after its end"
            raise FileNotFoundError(f"{directory}: holds {what}") from error
        except ValueError as error:
            raise ValueError(
                f"{directory}: {error}. The same `pausejax run` or `search` repairs it"
            ) from error
        expected = ExpectedRuns(frozenset(labels.identities), labels.variables, labels.kind)
        found = contents.read(folder, expected)
        if found.in_result.issuperset(labels.identities):
            return exchange.read(directory)
        # A file that another process removes counts as damaged in one attempt only.
        if not found.damaged or found.damaged == damaged:
            finished = found.identities
            rows = [row for row, name in enumerate(labels.identities) if name in finished]
            line = _said(len(rows), len(labels.identities), found.damaged)
            if not rows:
                raise FileNotFoundError(f"{directory}: {line}. Nothing can be shown yet")
            try:
                return _put_together(labels.take(rows), found).assign_attrs(partial=line)
            except MemoryError:
                raise
            except Exception as error:  # forged labels can make a library raise any error
                problem = f"{type(error).__name__}: {error}".partition("\n")[0]
        damaged = found.damaged
    problem = problem or f"{damaged[0]} changes"
    raise OSError(f"{directory}: other processes change this folder ({problem}). Open it again")


def _put_together(labels: Labels, found: Contents) -> xr.Dataset:
    """Returns finished runs with their labels.

    Raises:
      OSError: a file can no longer be read.
      ValueError: a file is damaged, or the labels do not fit the runs.
    """
    known = set(labels.identities)
    stored_runs = [stored for stored in found.stored_runs if not known.isdisjoint(stored.identities)]
    provenance = [one for stored in stored_runs for one in stored.provenance]
    (result,) = blocks.labelled(labels, stored_runs, provenance, size=len(labels.identities))
    soundness.check(result)
    return with_eval_elapsed(result)


def _said(finished: int, planned: int, damaged: Sequence[str]) -> str:
    """Returns a line that says how many runs of a study are finished, and which files are damaged."""
    line = f"{finished} of {planned} runs are finished"
    if finished == planned or not damaged:  # under a URL an unfinished move looks like damage
        return line
    more = f" and {len(damaged) - _NAMED} more" if len(damaged) > _NAMED else ""
    return f"{line}. Damaged files, whose runs do not count: {', '.join(damaged[:_NAMED])}{more}"
