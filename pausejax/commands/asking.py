"""What is asked of `report` and `run`, from --measure to --smooth: in words, and where it is left."""

import argparse
import hashlib
import re
from pathlib import Path

from pausejax.plotting.data import file_names
from pausejax.results.folder import Folder

# Requests that their names tell apart: no value has an underscore or a sign that names of files lack.
_PLAIN = re.compile(
    r"(?:(?:^| )--(?:measure(?: \w+)+|by \w+(?:,\w+)*|smooth \d+|where \w+=[^\W_]+(?:,\w+=[^\W_]+)*))+"
)


def in_words(options: argparse.Namespace) -> str:
    """What is asked for, as it is typed."""
    where = ",".join(f"{key}={value}" for key, values in options.where.items() for value in values)
    named = {"measure": " ".join(options.measure), "where": where, "by": ",".join(options.by)}
    named["smooth"] = str(options.smooth) if options.smooth > 1 else ""
    return " ".join(f"--{name} {value}" for name, value in named.items() if value)


def within(directory: str, words: str) -> str:
    """A folder within another one, named after some words; it is made where it can be.

    Raises:
      ValueError: a link lies in its place.
      OSError: it can't be made.
    """
    name = file_names([words])[0]
    cut = name != re.sub(r"\W+", "_", words).strip("_")
    if cut or not _PLAIN.fullmatch(words):
        # Another request would have the same name, such as x = -1 and x = 1, and would replace this one.
        name += f"_{hashlib.sha256(words.encode()).hexdigest()[:8]}"
    found = Folder(f"{directory.rstrip('/')}/{name}")
    if found.is_local and Path(found.path()).is_symlink():
        raise ValueError(f"{found}: is a link; nothing is written into it")
    found.make()
    return found.location
