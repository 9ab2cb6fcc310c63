"""Results whose attributes, coordinates or variables a stranger has made up, and every way to read them.

As a program, `python -m tests.faults.forged FOLDER FIRST COUNT` reads so many in a process that has few
gigabytes and a minute for each, and prints a line of JSON for each: its number, what was forged, what went
wrong.
"""

import json
import random
import resource
import shutil
import signal
import sys
import traceback
import warnings
from pathlib import Path

import numpy as np

import pausejax
from pausejax.commands import main as cli
from pausejax.execution.tracking.runs import tracked_runs
from pausejax.results import manifest
from pausejax.results.folder import Folder

from ..analysis.made_up import build, store
from .test_mutations import call

MEMORY, SECONDS = 2**33, 60
NAME = "study"
TEXTS = (
    "</script><img src=x onerror=alert(1)>",
    r"$\foo$",
    "$5 to $10",
    "latency [s]",
    "[/]",
    "[bold]",
    "=1+1",
    "../../../escaped",
    "/etc/passwd",
    "a\nb",
    "\x1b[31m",
    "\x00",
    "\ud800",
    "x" * 2000,
    "y" * 200_000,
    "α" * 300,
    "",
    " ",
    "{0.__class__}",
    "%n%s",
    "300000000.1f",
    ".999999999f",
    "\u202egnp.exe",
)
NUMBERS = (0, -1, 1, 2**31, 2**63, 2**64, 10**400, 1e308, -1e308, 1e-320, float("nan"), float("inf"), 0.5)


def base(folder):
    """The folder of a small sound result of mode "training"."""
    result, _, _ = build({"pause": {"privacy_weight": [1.0, 5.0]}, "plain": {}}, 2, ("privacy_weight",))
    result["test_loss"] = result["test_accuracy"] * 2
    result = result.assign_attrs(spec="seeds = 2\n", versions="{}", used_files="{}", format=2, backend="cpu")
    result = result.assign_attrs(variables=json.dumps(sorted(map(str, result.data_vars))))
    store(result, folder / NAME)
    return result


def anything(rng, depth=0):
    """A value of JSON, mostly a strange one."""
    kind = rng.randrange(8)
    if kind < 3:
        return rng.choice(TEXTS)
    if kind < 5:
        return rng.choice(NUMBERS)
    if kind == 5 or depth > 2:
        return rng.choice((None, True, False, [], {}))
    if kind == 6:
        return [anything(rng, depth + 1) for _ in range(rng.choice((1, 2, 3, 300)))]
    return {f"{rng.choice(TEXTS)}{n}": anything(rng, depth + 1) for n in range(rng.choice((1, 3, 50)))}


def deep(rng):
    """Text of JSON that is nested thousands of times."""
    return rng.choice(("[" * 100_000, "[" * 5000 + "]" * 5000, '{"a":' * 5000 + "1" + "}" * 5000))


def forge_attributes(rng, attributes):
    """Some attributes, one to three of them forged; and what was done."""
    done = []
    for name in rng.sample(sorted(attributes), rng.choice((1, 1, 2, 3))):
        how = rng.randrange(9)
        held = attributes[name]
        parsed = json.loads(held) if isinstance(held, str) and held[:1] in "[{" else None
        if how == 0:
            attributes.pop(name)
        elif how == 1:
            attributes[name] = anything(rng)
        elif how == 2:
            attributes[name] = deep(rng)
        elif how == 3 and parsed is not None:
            attributes[name] = json.dumps([f"n{n}" for n in range(100_000)])
        elif isinstance(parsed, dict) and parsed:
            one = rng.choice(sorted(parsed))
            if isinstance(parsed[one], dict) and how < 8:
                field = rng.choice(sorted(parsed[one]))
                parsed[one][field] = anything(rng)
                done.append(f"{one}.{field}")
            elif how < 8:
                parsed[one] = anything(rng)
            else:
                parsed[rng.choice(TEXTS)] = parsed.pop(one)
            attributes[name] = json.dumps(parsed)
        elif isinstance(parsed, list):
            parsed.insert(0, anything(rng))
            attributes[name] = json.dumps(parsed)
        else:
            attributes[name] = rng.choice((*TEXTS, json.dumps(anything(rng))))
        done.append(f"{name} ({how})")
    return attributes, "attributes " + ", ".join(done)


def forge_arrays(rng, result):
    """A result, one of whose coordinates or variables is another; and what was done."""
    name = rng.choice(sorted(map(str, result.variables)))
    array = result[name]
    values = array.values.copy()
    how = rng.randrange(10)
    if how == 0:
        result = result.drop_vars(name)
    elif how == 1:
        result = result.rename(
            {name: rng.choice([t for t in TEXTS if t.strip() and t.isprintable() and "/" not in t])[:100]}
        )
    elif how == 2:
        words = np.full(values.shape, rng.choice([t for t in TEXTS if "\ud800" not in t]))
        result[name] = (array.dims, words)
    elif how == 3:
        result[name] = (
            array.dims,
            np.full(values.shape, rng.choice((np.nan, np.inf, -1e308, 1e308, 1e-320))),
        )
    elif how == 4:
        result[name] = (array.dims, np.full(values.shape, rng.choice((-1, 0, 2**62, -(2**62))), np.int64))
    elif how == 5:
        result[name] = (
            array.dims,
            rng.choice((np.ones(values.shape, bool), np.ones(values.shape, np.complex64))),
        )
    elif how == 6:
        result[name] = (tuple(f"d{n}" for n in range(values.ndim)), values)
    elif how == 7 and values.ndim > 1:
        result[name] = array.transpose()
    elif how == 8:
        result[name] = (("run",), np.arange(result.sizes["run"]))
    else:
        result = result.reset_coords(name) if name in result.coords and name not in result.dims else result
        result[name].attrs |= {"units": rng.choice(TEXTS[:10]), "long_name": "days since 2000-01-01"}
    return result, f"{name} ({how})"


def forge(folder, result, seed):
    """Writes one forged result in the place of the last; what was forged."""
    rng = random.Random(seed)
    out = folder / f"forged{seed}"
    if rng.random() < 0.4:
        forged, what = forge_arrays(rng, result.copy())
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                store(forged, out)
            return out, what
        except Exception:  # of what no store can hold
            shutil.rmtree(out, ignore_errors=True)
    shutil.copytree(folder / NAME, out)
    described = out / "results.zarr" / "zarr.json"
    held = json.loads(described.read_text())
    held["attributes"], what = forge_attributes(rng, held["attributes"])
    described.write_text(json.dumps(held))
    manifest.seal(Folder(out), "results.zarr")
    return out, what


def quiet_problem(said):
    """What is wrong with how a command ended, or None: one line, or none where all went well."""
    code, _, err, trace = said
    lines = err.splitlines()
    if trace:
        return trace
    if code == cli.OK:
        return None
    if code not in (cli.FAILED, cli.BAD_SPEC) or len(lines) != 1 or not lines[0].isprintable():
        return f"exit code {code}: {err[:2000]!r}"
    return f"a line of {len(lines[0])} characters" if len(lines[0]) > 2000 else None


def read(out, *, draw=True):
    """Reads a result in every way; what went wrong, or None."""
    before = {path for path in out.parent.rglob("*") if not path.is_relative_to(out)}
    commands = [["best", str(out)], ["export", str(out), "--format", "csv"], ["export", str(out), "--curves"]]
    commands += [["report", str(out)]] if draw else []
    for command in commands:
        if wrong := quiet_problem(call(command)):
            return f"{command[0]}: {wrong}"
    if draw and (out / "report.html").exists() and "<img src=x" in (out / "report.html").read_text():
        return "a tag of a stranger's is in the page"
    if {path for path in out.parent.rglob("*") if not path.is_relative_to(out)} - before:
        return "a file was written outside the folder"
    try:
        result = pausejax.open(out)
        repr(pausejax.summary(result))
        list(tracked_runs(result.load()))
        pausejax.analysis.select(result, policy="pause")
        pausejax.analysis.paired_difference(result, "pause", "plain", str(result.attrs["ranking"]))
    except ValueError:
        return None
    except Exception:
        return traceback.format_exc(limit=-4)
    return None


def main(folder, first, count):
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    signal.signal(signal.SIGALRM, lambda *_: (_ for _ in ()).throw(TimeoutError(f"more than {SECONDS} s")))
    warnings.simplefilter("ignore")
    result = base(folder)
    for seed in range(first, first + count):
        out, what = forge(folder, result.copy(), seed)
        signal.alarm(SECONDS)
        wrong = read(out)
        signal.alarm(0)
        told = {"seed": seed, "what": what, "wrong": wrong, "page": (out / "report.html").exists()}
        print(json.dumps(told), flush=True)
        shutil.rmtree(out)


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
