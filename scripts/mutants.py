"""Runs the tests against mutants of the package, each with one small mistake, and prints which survive.

    python scripts/mutants.py named              # all mutants of the list scripts/mutants.toml
    python scripts/mutants.py named NAME ...     # some mutants of the list
    python scripts/mutants.py fresh --count 300  # mutants that are drawn from the core's syntax trees

Two other tools do not fit. mutmut selects a mutant by a switch in every function, which `jit` freezes in its
traces. cosmic-ray edits the checkout and starts Python for each mutant. Neither accepts a list of mutants.

Every mutant is applied to a copy of the checkout in a temporary folder. A process runs the tests that are
mapped to the mutant, up to the first failure. It is forked from a process that has already imported JAX and
the other libraries. The outcomes are appended to a file of JSON lines. A second call over the same code and
tests continues from there.
"""

import argparse
import hashlib
import itertools
import json
import os
import random
import re
import shutil
import signal
import sys
import tempfile
import time
import tomllib
import traceback
from pathlib import Path

os.environ.setdefault("JAX_PLATFORMS", "cpu")

from mutation import Mutant, draw  # a module in the folder of this script

ROOT = Path(__file__).resolve().parents[1]
LIST = ROOT / "scripts" / "mutants.toml"
COPIED = (
    "pausejax",
    "tests",
    "scripts",
    "docs",
    "examples",
    "sweeps",
    "pyproject.toml",
    "README.md",
    "CHANGELOG.md",
)
BROKEN, NO_TEST, FAILED = 90, 91, 92
"""Exit codes of a child process: the mutant can't be imported; its files hold no test; the child failed."""


def read_list():
    """Returns the mutants of the list, and the tests of each room or module."""
    table = tomllib.loads(LIST.read_text(encoding="utf-8"))
    named = [Mutant(**{**entry, "tests": tuple(entry["tests"])}) for entry in table["mutant"]]
    return named, table["tests"]


def rooms_of(mapped):
    """Returns the entries of the list's [tests] that are in no other entry."""
    return [room for room in mapped if not any(room != other and room.startswith(other) for other in mapped)]


def tests_of(file, mapped):
    """Returns a module's test files: those that import it, the smallest first, then those of its entry."""
    prefixes = [prefix for prefix in mapped if file.startswith(f"pausejax/{prefix}")]
    room, _, stem = file.removesuffix(".py").replace("/", ".").rpartition(".")
    imported = re.compile(rf"{re.escape(f'{room}.{stem}')}\b|from {re.escape(room)} import [^\n]*\b{stem}\b")
    same_name = f"test_{stem.strip('_')}"

    def is_own(path):
        return path.stem == same_name and room.endswith(path.parent.name)

    paths = (ROOT / "tests").rglob("test_*.py")
    own = [path for path in paths if is_own(path) or imported.search(path.read_text(encoding="utf-8"))]
    own.sort(key=lambda path: (path.stem != same_name, path.stat().st_size))
    names = [path.relative_to(ROOT).as_posix() for path in own]
    return tuple(dict.fromkeys([*names, *mapped[max(prefixes, key=len)]]))


def digest():
    """Computes a hash of the package and its tests, on which an outcome depends."""
    found = hashlib.sha256()
    for path in sorted([*(ROOT / "pausejax").rglob("*.py"), *(ROOT / "tests").rglob("*.py")]):
        found.update(path.relative_to(ROOT).as_posix().encode() + b"\0" + path.read_bytes())
    return found.hexdigest()[:16]


def make_copy(folder):
    """Copies the checkout and its compiled programs into a folder, links the shared data, and returns the
    copy."""
    checkout = folder / "checkout"
    checkout.mkdir()
    for name in COPIED:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, checkout / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(ROOT / name, checkout / name)
    if (ROOT / ".cache" / "compiled").is_dir():
        shutil.copytree(ROOT / ".cache" / "compiled", checkout / ".cache" / "compiled")
    if (ROOT.parent / "shared").is_dir():
        (folder / "shared").symlink_to(ROOT.parent / "shared")
    return checkout


def import_libraries():
    """Imports libraries that take seconds to import and start no thread, which a fork would lose."""
    import jax  # noqa: F401
    import matplotlib.figure  # noqa: F401
    import optax  # noqa: F401
    import pandas  # noqa: F401
    import pytest  # noqa: F401
    import rich.table  # noqa: F401
    import scipy.signal
    import scipy.special
    import scipy.stats  # noqa: F401
    import xarray  # noqa: F401
    import zarr  # noqa: F401


class Watch:
    """Puts slow tests last, and records the first test that fails and the number of tests that ran."""

    def __init__(self):
        self.failed, self.count = "", 0

    def pytest_collection_modifyitems(self, items):
        items.sort(key=lambda item: item.get_closest_marker("slow") is not None)

    def pytest_runtest_logreport(self, report):
        self.count += report.when == "call"
        if report.failed and not self.failed:
            self.failed = report.nodeid

    def pytest_collectreport(self, report):
        if report.failed and not self.failed:
            self.failed = report.nodeid


def child(checkout, module, tests, found):
    """Runs the tests in a forked process and exits; writes the first test that failed to the file `found`."""
    log = os.open(checkout.parent / "log.txt", os.O_CREAT | os.O_TRUNC | os.O_WRONLY, 0o644)
    os.dup2(log, 1)
    os.dup2(log, 2)
    os.setpgid(0, 0)
    os.chdir(checkout)
    sys.path[:] = [str(checkout), *(p for p in sys.path if p not in ("", str(ROOT), str(ROOT / "scripts")))]
    os.environ |= {"PYTHONPATH": str(checkout), "PYTHONDONTWRITEBYTECODE": "1"}
    sys.dont_write_bytecode = True
    code = FAILED
    try:
        import importlib

        import pytest

        try:
            importlib.import_module("pausejax.kinds")
            importlib.import_module(module)
        except Exception:
            traceback.print_exc()
            os._exit(BROKEN)
        assert sys.modules["pausejax"].__file__.startswith(str(checkout)), "the tests must import the copy"
        watch = Watch()
        options = [
            "-x",
            "--slow",
            "-q",
            "-p",
            "no:cacheprovider",
            "-W",
            "ignore::pytest.PytestAssertRewriteWarning",
            f"--basetemp={checkout.parent / 'tmp'}",
        ]
        code = int(pytest.main([*options, *tests], plugins=[watch]))
        if code == 0 and not watch.count:
            code = NO_TEST
        found.write_text(watch.failed)
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def cpu_seconds(pid):
    """Returns the CPU seconds of a process and of its children that have ended."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")


def run(checkout, mutant, limit):
    """Tests one mutant; returns the outcome, the test that killed the mutant or the reason, and the
    seconds."""
    path, found = checkout / mutant.file, checkout.parent / "found.txt"
    whole = path.read_text(encoding="utf-8")
    path.write_text(mutant.apply(whole), encoding="utf-8")
    found.unlink(missing_ok=True)
    module = mutant.file.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
    begun = time.monotonic()
    try:
        pid = os.fork()
        if not pid:
            child(checkout, module, mutant.tests, found)
        while (ended := os.waitpid(pid, os.WNOHANG))[0] == 0:
            if cpu_seconds(pid) > limit or time.monotonic() - begun > 10 * limit:
                os.killpg(pid, signal.SIGKILL)
                os.waitpid(pid, 0)
                return "unfinished", f"no end after {limit:.0f} s", time.monotonic() - begun
            time.sleep(0.05)
    finally:
        path.write_text(whole, encoding="utf-8")
        shutil.rmtree(checkout.parent / "tmp", ignore_errors=True)
    seconds, code = time.monotonic() - begun, os.waitstatus_to_exitcode(ended[1])
    if code in (4, FAILED):
        raise SystemExit((checkout.parent / "log.txt").read_text())
    if code == BROKEN:
        return "broken", "can't be imported", seconds
    if code == NO_TEST:
        return "untested", "no test ran", seconds
    if code == 0:
        return "survived", "", seconds
    return "killed", found.read_text() if found.exists() else f"the process ended with {code}", seconds


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("which", choices=("named", "fresh"))
    parser.add_argument("names", nargs="*", help="mutants of the list (default: all)")
    parser.add_argument("--count", type=int, default=300, help="number of fresh mutants that can be imported")
    parser.add_argument("--seed", type=int, default=0, help="seed that draws the fresh mutants")
    parser.add_argument(
        "--skip", type=int, default=0, help="number of fresh mutants to leave out at the start"
    )
    parser.add_argument(
        "--rooms", nargs="+", help="entries of the list's [tests] to draw fresh mutants from (default: all)"
    )
    parser.add_argument("--limit", type=float, default=600.0, help="CPU seconds that a mutant may take")
    parser.add_argument("--out", type=Path, default=ROOT / ".cache" / "mutants.jsonl")
    arguments = parser.parse_args()
    named, mapped = read_list()
    for mutant in named:
        mutant.apply((ROOT / mutant.file).read_text(encoding="utf-8"))  # checks that the text is still there
    if arguments.which == "named":
        unknown = set(arguments.names) - {mutant.name for mutant in named}
        if unknown:
            parser.error(f"no mutant of {LIST.name} is named {', '.join(sorted(unknown))}")
        mutants = [mutant for mutant in named if not arguments.names or mutant.name in arguments.names]
    else:
        if unknown := set(arguments.rooms or ()) - set(mapped):
            parser.error(f"--rooms {' '.join(sorted(unknown))}: must be among {', '.join(mapped)}")
        order = draw(ROOT, sorted(arguments.rooms or rooms_of(mapped)), random.Random(arguments.seed))
        order = itertools.islice(order, arguments.skip, None)
        mutants = (mutant._replace(tests=tests_of(mutant.file, mapped)) for mutant in order)
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    lines = arguments.out.read_text().splitlines() if arguments.out.exists() else []
    version = digest()
    done = {
        (r["file"], r["old"], r["new"], r["line"], *r["tests"]): r
        for r in map(json.loads, lines)
        if r["of"] == version
    }
    import_libraries()
    folder = Path(tempfile.mkdtemp(prefix="mutants-"))
    tally, survivors = {}, []
    try:
        checkout = make_copy(folder)
        for mutant in mutants:
            if arguments.which == "fresh" and sum(tally.values()) - tally.get("broken", 0) >= arguments.count:
                break
            record = done.get((mutant.file, mutant.old, mutant.new, mutant.line, *mutant.tests))
            if record is None:
                outcome, by, seconds = run(checkout, mutant, arguments.limit)
                record = {**mutant._asdict(), "outcome": outcome, "by": by, "seconds": seconds, "of": version}
                with arguments.out.open("a") as out:
                    out.write(json.dumps(record) + "\n")
            tally[record["outcome"]] = tally.get(record["outcome"], 0) + 1
            if record["outcome"] in ("survived", "untested"):
                survivors.append(mutant)
            print(
                f"{record['outcome']:10} {record['seconds']:6.1f} s  {mutant.title}  {record['by']}",
                flush=True,
            )
    finally:
        if not os.environ.get("KEEP"):
            shutil.rmtree(folder, ignore_errors=True)
    print(", ".join(f"{count} {outcome}" for outcome, count in sorted(tally.items())))
    for mutant in survivors:
        print(f"survived: {mutant.title}\n  - {mutant.old}\n  + {mutant.new}")
    return bool(survivors)


if __name__ == "__main__":
    sys.exit(main())
