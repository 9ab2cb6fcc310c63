"""Reads and writes `search.json`, which holds a search's spec, options, versions and digests of files.

The process that begins a search writes the file. Later processes must have an equal spec, equal options,
equal versions of the libraries and equal files. Then their sampler suggests the same settings, and the runs
of these settings are found in the folder by their identities.
"""

import contextlib
import json
import os
import time
from collections.abc import Iterator, Mapping
from typing import Any

from pausejax.execution import events
from pausejax.execution.stopping import StopSignal
from pausejax.results import exchange, study_folder
from pausejax.results.description import problem_of_replacing
from pausejax.results.folder import Folder
from pausejax.results.sealed import read_sealed, write_sealed
from pausejax.study.spec import SpecError

NAME = exchange.SEARCH
LOCK = ".searching"
"""The lock of the process that plays a search."""
CONFIRMATION = "confirmation"
"""The name of the folder of the runs on fresh seeds."""
RECORD = "search_record.json"
TRIALS = "trials.json"
JOURNAL = "optuna.log"
"""The name of the file with the trials as optuna-dashboard reads them."""


@contextlib.contextmanager
def alone(folder: Folder, stopping: StopSignal) -> Iterator[None]:
    """Waits until no other process plays the folder's search; other processes wait during the context.

    The numbers of two processes may differ in their last bits, and then their samplers suggest different
    settings. Without locks, as under a URL, the function does not wait.

    Raises:
      StopRequested: `stopping` asked to stop.
      OSError: the folder can't be written to.
    """
    if not folder.is_local:
        yield
        return
    waits = False
    while (file := folder.lease(LOCK)) is None:
        if not waits:
            events.say("waiting", f"{folder}: another process plays this search. This process waits for it")
        waits = True
        stopping.check()
        time.sleep(1)
    try:
        yield
    finally:
        with contextlib.suppress(OSError):
            folder.remove(LOCK)
        folder.remove_if_empty("")
        os.close(file)


def read(folder: Folder, wanted: Mapping[str, Any]) -> dict[str, Any] | None:
    """Makes a search's folder, and returns the content of its file `search.json`.

    Returns None if no search has begun in the folder.

    Args:
      folder: the folder of the search.
      wanted: the values of "spec", "options", "versions" and "files" in this process. The file may have
        further keys.

    Raises:
      SpecError: the folder holds another search, a study that is not a search, or files of the user that
        the search would replace.
      OSError: the folder can't be made or read.
    """
    folder.make()
    names = folder.names("")
    if NAME not in names:
        # A process may have been killed after it wrote the spec, and before it wrote this file.
        is_equal = _is_of(folder, wanted)
        own = (CONFIRMATION, RECORD, TRIALS, JOURNAL)
        if problem := problem_of_replacing(folder, keeps_spec=is_equal, others=own, kind="search"):
            raise SpecError([f"--out {folder}: {problem}"])
        if {study_folder.SPEC, study_folder.RESULT} & set(names) and not is_equal:
            raise SpecError([f"--out {folder}: holds a study, not a search. Choose another folder"])
        return None
    try:
        held: dict[str, Any] = dict(read_sealed(folder, NAME))
    except (OSError, TypeError, ValueError) as error:
        if not _is_of(folder, wanted):
            what = "is damaged. Repeat the command that began the search, or choose another folder"
            raise SpecError([f"--out {folder}: {NAME} {what}"]) from error
        return None
    _refuse_another(folder, held, wanted)
    return held


def write(folder: Folder, content: Mapping[str, Any], *, writes: bool = True) -> dict[str, Any]:
    """Writes the file `search.json`, unless there is an intact one; returns the file's content.

    Args:
      folder: the folder of the search.
      content: the values of "spec", "options", "versions" and "files" in this process, and "lists" and
        "batch", which the process that writes the file decides for all.
      writes: whether a missing or damaged file is written.

    Raises:
      SpecError: meanwhile another process has begun another search in the folder.
      OSError: the file can't be written, for example because no space is left.
    """
    with folder.lock(study_folder.LOCK):
        try:
            held = dict(read_sealed(folder, NAME))
        except (OSError, TypeError, ValueError) as error:
            if not writes:
                return dict(content)
            if not isinstance(error, FileNotFoundError):
                folder.remove(NAME)
                events.say("damaged", f"{NAME}: is damaged, so it is written again", file=NAME)
            write_sealed(folder, NAME, content)
            return dict(content)
    _refuse_another(folder, held, {key: content[key] for key in ("spec", "options", "versions", "files")})
    return held


def _refuse_another(folder: Folder, held: Mapping[str, Any], wanted: Mapping[str, Any]) -> None:
    """Raises SpecError if a search of this content is not the one that this process wants."""
    asked = json.loads(json.dumps(dict(wanted)))
    if problem := _other_versions(held.get("versions", {}), asked.pop("versions")):
        raise SpecError([f"--out {folder}: {problem}"])
    files = asked.pop("files")
    before = held.get("files", files)
    changed = [line for key in asked for line in _changes(key, held.get(key), asked[key])]
    if changed:
        what = f"holds another search, which differs in {', '.join(changed)}. Choose another folder"
        raise SpecError([f"--out {folder}: {what}"])
    if others := [name for name in {**before, **files} if before.get(name) != files.get(name)]:
        way_out = f"Put the old content back ({study_folder.USED}/ has copies of the files of `use`)"
        what = f"the content of {', '.join(others)} has changed since the search began"
        raise SpecError([f"--out {folder}: {what}. {way_out}, or choose another folder"])


def _is_of(folder: Folder, wanted: Mapping[str, Any]) -> bool:
    """Returns whether a folder's runs belong to the spec and the files of `wanted`.

    Returns False if the folder holds no spec. A missing or damaged list of files does not count.
    """
    if not (folder.exists(study_folder.SPEC) and folder.read(study_folder.SPEC) == wanted["spec"].encode()):
        return False
    try:
        return bool(read_sealed(folder, study_folder.FILES) == wanted["files"])
    except (OSError, ValueError):
        return True


def _other_versions(held: Mapping[str, str], here: Mapping[str, str]) -> str:
    """Returns why a search can not continue with the installed libraries' versions; "" if it can."""
    for name, version in here.items():
        if held.get(name) != version:
            library = {"optuna": "Optuna"}.get(name, name)
            if name not in held:
                began = f"the search was begun by a release that did not record the version of {library}"
                return f"{began}. Now {library} {version} is installed. Choose another folder"
            began = f"the search was begun with {library} {held[name]}, but {library} {version} is installed"
            return (
                f"{began}, which may suggest other settings. Install {library} {held[name]}, or choose "
                "another folder"
            )
    return ""


def _changes(key: str, held: Any, asked: Any) -> list[str]:
    """Returns in words what differs between the file's value of `key` and the value that the command asks
    for."""
    if isinstance(held, dict) and isinstance(asked, dict):
        names = [name for name in {**held, **asked} if held.get(name) != asked.get(name)]
        return [f"{name} ({held.get(name)}, now {asked.get(name)})" for name in names]
    return [] if held == asked else [f"the {key}"]
