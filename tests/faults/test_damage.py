"""Flipped bits and cut files, in everything that a study leaves: an error or the very same numbers.

`--damages N` says how many.
"""

import contextlib
import io
import random
import shutil
import traceback
import warnings

import jax
import pytest
from jax._src import compilation_cache

import pausejax
from pausejax.commands import main as cli
from pausejax.execution import runtime

from ..alike import alike, assert_alike
from . import folders, specs

STUDY = {**specs.BANDIT, "rounds": 50, "seeds": 2, "policy": [{"name": "random"}, {"name": "fastest"}]}
LANES = ("--lanes", "2", "--checkpoint-every", "0")


@pytest.fixture(scope="module")
def studies(tmp_path_factory):
    """The folders of one study: finished, and killed in mid-run with parts and a checkpoint."""
    folder = tmp_path_factory.mktemp("studies")
    spec = folders.write(folder, folders.gated(STUDY))
    process, gate = folders.start_and_hold(spec, folder / "killed", 30, *LANES)
    # The first chunk's runs wait in round 30; those of the second one, of another policy, in theirs.
    folders.kill(process)
    (gate / "hold").unlink()
    run(spec, folder / "finished")
    half = folders.write(folder, folders.gated({**STUDY, "seeds": 1}), "half.toml")
    run(half, folder / "extended")
    return spec, folder, pausejax.open(folder / "finished").load()


def run(spec, out):
    code, err, trace = call(["run", str(spec), "--out", str(out), "--quiet", "--no-report", *LANES])
    assert code == cli.OK and not trace, err + trace


def call(arguments):
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            return cli.main(arguments), err.getvalue(), ""
        except BaseException:
            return None, err.getvalue(), traceback.format_exc(limit=-4)


def damage(path, rng):
    """Does something to a file; what was done."""
    content = path.read_bytes()
    kind = rng.choice(
        ("flip", "flip", "flip", "flip", "cut", "empty", "more", "zeros", "gone", "folder", "link")
    )
    place = rng.randrange(max(len(content), 1))
    changed = bytearray(content)
    if kind == "flip" and content:
        changed[place] ^= 1 << rng.randrange(8)
    elif kind == "cut":
        del changed[place:]
    elif kind == "more":
        changed += bytes(rng.randrange(256) for _ in range(rng.randrange(1, 50)))
    elif kind == "zeros":
        changed[place : place + 64] = bytes(len(changed[place : place + 64]))
    elif kind == "empty":
        changed.clear()
    path.unlink()
    if kind == "folder":
        path.mkdir()
    elif kind == "link":
        path.symlink_to("/nonexistent/file")
    elif kind != "gone":
        path.write_bytes(changed)
    return f"{kind} at {place} of {len(content)}"


def damaged_copy(folder, name, out, rng):
    """A copy of a folder with one file damaged; every kind of file is as likely as any."""
    shutil.rmtree(out, ignore_errors=True)
    shutil.copytree(folder / name, out)
    files = sorted(path for path in out.rglob("*") if path.is_file())
    kinds = {}
    for path in files:
        parts = path.relative_to(out).parts
        kinds.setdefault((parts[0], path.suffix, path.name if path.suffix == ".json" else ""), []).append(
            path
        )
    path = rng.choice(kinds[rng.choice(sorted(kinds))])
    return f"{path.relative_to(out)}: {damage(path, rng)}"


def opens_falsely(out, expected):
    """Whether a folder opens to other numbers; raises what is no error of its own."""
    try:
        found = pausejax.open(out).load()
    except (ValueError, OSError):
        return False
    found.attrs, expected.attrs = dict(found.attrs), dict(expected.attrs)
    return not alike(found, expected)


def goes_on_falsely(spec, out, expected):
    """What is wrong with the same command on a damaged folder, or None: it is refused, or ends the same."""
    code, err, trace = call(["run", str(spec), "--out", str(out), "--quiet", "--no-report", *LANES])
    if trace or code not in (cli.OK, cli.FAILED, cli.BAD_SPEC):
        return f"exit code {code}, {trace}"
    if code != cli.OK:
        return None if 1 <= len(err.splitlines()) <= 21 else f"says {err!r}"
    return "other numbers" if opens_falsely(out, expected) or not (out / "results.zarr").is_dir() else None


@pytest.mark.slow
@pytest.mark.usefixtures("compiled_once")
def test_nothing_damaged_is_believed(studies, tmp_path, request):
    spec, folder, expected = studies
    half = pausejax.open(folder / "extended").load()
    first, count = request.config.getoption("--first-seed"), request.config.getoption("--damages")
    found, opened, went_on = [], 0, 0
    for number in range(first, first + count):
        rng = random.Random(number)
        name = rng.choice(("finished", "finished", "killed", "extended"))
        out = tmp_path / "out"
        what = f"{name} {number} " + damaged_copy(folder, name, out, rng)
        try:
            if name != "killed" and opens_falsely(out, expected if name == "finished" else half):
                found.append(f"{what}: opens to other numbers")
            opened += name != "killed"
        except Exception:
            found.append(f"{what}: {traceback.format_exc(limit=-4)}")
        # Going on takes longer than opening.
        if name == "killed" or rng.random() < 0.25:
            went_on += 1
            wrong = goes_on_falsely(spec, out, expected)
            found += [f"{what}: {wrong}"] if wrong else []
        if number % 100 == 99:
            jax.clear_caches()
            print(f"{number + 1 - first} damages: {opened} opened, {went_on} gone on; {found}", flush=True)
    print(f"{count} damages from seed {first}: {opened} were opened, {went_on} were gone on with")
    assert not found, f"{len(found)} of {count}:\n" + "\n".join(found[:20])


@pytest.mark.slow
def test_a_damaged_compile_cache_costs_time_alone(tmp_path, monkeypatch, request):
    monkeypatch.setenv("PAUSEJAX_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(compilation_cache, "get_file_cache", compilation_cache.get_file_cache)
    before = jax.config.values["jax_compilation_cache_dir"]
    rng = random.Random(request.config.getoption("--first-seed"))
    arguments = {"mode": "bandit", "rounds": 5, "num_clients": 5, "clients_per_round": 2}
    try:
        jax.config.update("jax_compilation_cache_dir", None)
        runtime.set_up_jax()
        fresh(monkeypatch)
        expected = pausejax.simulate("pause", **arguments)
        kept = sorted((tmp_path / "cache" / "compiled").glob("*-cache"))
        assert kept
        for _ in range(-(-request.config.getoption("--damages") // 30)):
            contents = {path: path.read_bytes() for path in kept}
            for path in rng.sample(kept, min(len(kept), 10)):
                damage(path, rng)
            fresh(monkeypatch)
            with warnings.catch_warnings():
                warnings.filterwarnings("ignore", "Error (reading|writing) persistent compilation cache")
                assert_alike(pausejax.simulate("pause", **arguments), expected)
            for path, content in contents.items():
                if path.is_dir() or path.is_symlink():
                    path.rmdir() if path.is_dir() and not path.is_symlink() else path.unlink()
                path.write_bytes(content)
    finally:
        jax.config.update("jax_compilation_cache_dir", before)
        fresh(monkeypatch)


def fresh(monkeypatch):
    """Forgets all compiled programs, and which folder keeps them."""
    jax.clear_caches()
    compilation_cache.reset_cache()
