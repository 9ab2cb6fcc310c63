"""Writes what a study's folder says about its plan, and compares it with other plans.

These are the spec, the digests and copies of the files that the runs depend on, and the labels of the runs.
"""

import contextlib
import difflib
import json
import os
import re
import tomllib
from collections.abc import Collection, Mapping, Sequence

import tomli_w

from pausejax.analysis import schema
from pausejax.results import labels, manifest, planned
from pausejax.results.contents import Contents
from pausejax.results.exchange import LABELS, RESULT, result_name
from pausejax.results.folder import Folder
from pausejax.results.sealed import read_sealed, write_sealed
from pausejax.results.snapshot import described
from pausejax.study.spec import SpecError, with_symbols
from pausejax.study.study import FORMAT, Plan

CHECKPOINTS = "checkpoints"
PIECE = re.compile(r"[0-9a-f]{16}(\.lease)?")
"""Pattern of the names of checkpoints, which are folders, and of their lease files."""
_STATE = re.compile(r"state-(\d+)\.npz")
LOCK = ".lock"
"""The lock of the process that builds a result. Processes that read finished runs share this lock.

The file stays in the folder. It shows that a study or a search has begun there.
"""
SPEC = "spec.toml"
FILES = "files.json"
"""The name of the file with the digests of the files on which the runs depend."""
LAYOUT = "layout.json"
"""The name of the file with the layouts on devices."""
USED = "used"
"""The name of the folder with copies of the files that define the study's own parts."""


def describe(
    folder: Folder, plan: Plan, left_out: Collection[str] | None, *, keeps_spec: bool = False
) -> None:
    """Writes a plan's spec, its files and, unless `left_out` is None, the labels of its runs.

    A spec that is equal, but for comments and spaces, is kept; with `keeps_spec` every spec.
    """
    files = labels.used_files(plan.study)
    # Under a URL the labels show that a study has begun, so they are written before the spec.
    if left_out is not None:
        planned.write(folder, labels.Labels.of(plan), left_out)
    if not (keeps_spec and folder.exists(SPEC)) and spec_of(folder, plan) != labels.spec_text(plan):
        folder.write(SPEC, labels.spec_text(plan).encode())
    if files or folder.exists(FILES):
        write_sealed(folder, FILES, files)
    for name, content in labels.copies(plan.study).items():
        folder.write(f"{USED}/{name}", content)


def is_of(attributes: Mapping[str, object], plan: Plan) -> bool:
    """Returns whether the attributes of a result name a plan's spec and files.

    Two files that have exchanged their contents give the same runs other labels.
    """
    wanted = labels.attributes_of(plan)
    return all(attributes.get(name) == wanted[name] for name in ("spec", "used_files"))


def spec_of(folder: Folder, plan: Plan) -> str:
    """Returns the spec of a folder as `labels.spec_text` would write it; if it is not TOML, as it is."""
    text = folder.read(SPEC).decode(errors="replace") if folder.exists(SPEC) else ""
    try:
        return tomli_w.dumps(with_symbols(tomllib.loads(text), plan.study.words))
    except (ValueError, RecursionError):
        return text


def refuse_overwriting(folder: Folder, plan: Plan, given: str) -> None:
    """Raises a SpecError if the file of the plan's spec is that of the folder, and overrides would change it.

    Args:
      folder: the folder of the study.
      plan: the plan.
      given: the path of the file from which the spec was read.
    """
    own = folder.path(SPEC)
    if not (folder.is_local and os.path.exists(own) and os.path.samefile(given, own)):
        return
    if spec_of(folder, plan) != labels.spec_text(plan):
        what = f"{given} is the {SPEC} of this folder, and would be replaced by the spec with the overrides"
        raise SpecError([f"--out {folder}: {what}. Choose another folder, or run a copy of the file"])


def problem_of_replacing(
    folder: Folder,
    *,
    keeps_spec: bool,
    others: Sequence[str] = (),
    kind: str = "study",
    who: str = "this one",
) -> str:
    """Returns why a study or a search must not begin in a folder: it would replace the user's own files.

    Args:
      folder: the folder.
      keeps_spec: whether the spec in the folder is equal, and so is not replaced.
      others: names of further files and folders that would be replaced.
      kind: what may have begun in the folder, for the message.
      who: what would replace the files, for the message.

    Returns:
      The message; "" if nothing would be replaced, or if a study or a search has begun in the folder.
    """
    names = (*(() if keeps_spec else (SPEC,)), LABELS, FILES, LAYOUT, *others)
    # Look for the files before the lock, because a process that begins meanwhile makes the lock first.
    found = [name for name in names if folder.exists(name)]
    if not found or _has_begun(folder):
        return ""
    what = f"no {kind} has begun here, and {who} would replace {', '.join(found)}"
    return f"{what}. Choose another folder, or move what is there"


def _has_begun(folder: Folder) -> bool:
    """Returns whether a study or a search has begun in a folder.

    Its lock shows that. Under a URL, where there are no locks, its intact labels, files or layouts do.
    """
    if folder.exists(LOCK) or planned.runs(folder):
        return True
    for name in (FILES, LAYOUT):
        with contextlib.suppress(OSError, ValueError):
            read_sealed(folder, name)
            return True
    return False


def refuse_replacing(folder: Folder, plan: Plan) -> None:
    """Raises a SpecError if a plan would replace the user's own files, where no study has begun."""
    keeps_spec = spec_of(folder, plan) == labels.spec_text(plan)
    if problem := problem_of_replacing(folder, keeps_spec=keeps_spec):
        raise SpecError([f"--out {folder}: {problem}"])


def refuse_other_format(folder: Folder) -> None:
    """Raises a SpecError if the folder holds a result in the format of another release."""
    if (name := result_name(folder)) is None:
        return
    try:
        if folder.exists(f"{name}/.zattrs"):
            written = json.loads(folder.read(f"{name}/.zattrs")).get("format")
        else:
            written = described(folder, name, manifest.read(folder, name)).attrs.get("format")
    except Exception:
        return  # `study_folder.examine` reports a damaged result
    if written != FORMAT:
        raise SpecError(
            [
                f"--out {folder}: holds a result of format {schema.brief(written or 1)}, "
                f"but this release writes format {FORMAT}. Choose another folder"
            ]
        )


def refuse_unknown(folder: Folder, plan: Plan) -> None:
    """Raises a SpecError unless all runs that a folder's damaged result held are runs of the plan.

    The result says which runs these are, if its identities are intact; else the labels of the folder do.
    """
    runs: Collection[str] = ()
    with contextlib.suppress(Exception):
        name = result_name(folder) or RESULT
        runs = described(folder, name, manifest.read(folder, name))["identity"].values.tolist()
    runs = set(runs or planned.runs(folder))
    if runs and runs <= plan.known:
        return
    why, way = "and it can't be read which runs it holds", "Choose another folder"
    if runs:
        why, way = "with runs that this spec lacks", "Run a spec with all of its runs, choose another folder"
    what = f"holds a {RESULT} that is damaged or incomplete, {why}. {way}, or remove {RESULT}"
    raise SpecError([f"--out {folder}: {what}"])


def foreign(found: Contents, plan: Plan) -> list[str]:
    """Returns the names of the parts that hold runs which a plan lacks."""
    return [part.file for part in found.parts if not plan.known.issuperset(part.identities)]


def differences(folder: Folder, plan: Plan, problem: str, others: Sequence[str] = ()) -> list[str]:
    """Returns the lines of an error message on how a folder's study differs from a plan.

    If the specs are equal, the lines name the files `others`.
    """
    text, files = labels.spec_text(plan), labels.used_files(plan.study)
    allowed = "Choose another folder, or a spec that adds runs and removes none"
    try:
        before = dict(read_sealed(folder, FILES))
    except (OSError, TypeError, ValueError):
        before = {}  # a damaged list of files is ignored, because the specs are compared below
    changed = [name for name, digest in before.items() if files.get(name, digest) != digest]
    if changed:
        return [
            f"--out {folder}: holds runs that were made with other files. Choose another folder",
            *(f"{name}: its content has changed since these runs" for name in changed),
        ]
    compared = difflib.unified_diff(spec_of(folder, plan).splitlines(), text.splitlines(), n=0)
    shown = [line for line in compared if line[:1] in "+-" and line[:3] not in ("+++", "---")]
    shown = shown or [f"{name}: holds runs that this spec lacks. Remove it to continue" for name in others]
    return [f"--out {folder}: {problem}. {allowed}", *shown[:20]]


def refuse_foreign(folder: Folder, plan: Plan, found: Contents) -> None:
    """Raises an OSError if an unfinished study's folder holds runs that neither it nor an extension has."""
    others, runs = foreign(found, plan), planned.runs(folder).keys()
    if others and not (plan.known <= runs and found.identities <= runs):
        raise OSError(
            f"{folder}: runs of this spec are missing, and runs of another spec are in {', '.join(others)}. "
            "All shards must have one spec. To continue with this spec, remove these files and run it again"
        )


def checkpoints_of_others(folder: Folder, known: Collection[str]) -> dict[str, int]:
    """Returns the last round of each checkpoint with a run that is not in `known`, by its folder.

    Damaged checkpoints are left out.
    """
    found = {}
    for place in (f"{CHECKPOINTS}/{name}" for name in filter(PIECE.fullmatch, folder.names(CHECKPOINTS))):
        rounds = [int(match[1]) for name in folder.names(place) if (match := _STATE.fullmatch(name))]
        for last in sorted(rounds, reverse=True):
            with contextlib.suppress(KeyError, OSError, ValueError):
                identities = folder.read_arrays(f"{place}/state-{last}.npz")["identity"].tolist()
                if not frozenset(known).issuperset(identities):
                    found[place] = last
                break
    return found


def refuse_unfinished(folder: Folder, plan: Plan) -> None:
    """Raises a SpecError if the folder has a checkpoint of a killed study, with runs that the plan lacks."""
    if others := checkpoints_of_others(folder, plan.known):
        lines = differences(folder, plan, "holds unfinished runs of another spec")
        same = ["The specs are equal, but a part or this release has changed"] if len(lines) == 1 else []
        way_out = "If no process plays, remove this folder to discard these rounds"
        raise SpecError(
            [
                *lines,
                *same,
                *(f"{folder}/{o}: the runs up to round {n}. {way_out}" for o, n in others.items()),
            ]
        )
