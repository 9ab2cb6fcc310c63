"""Searches that are killed, and what they leave damaged: the very same result, or one clear line.

`--damages N` and `--kills N` say how many, with `--slow`.
"""

import contextlib
import functools
import random
import shutil
import time
import traceback
import warnings

import jax
import pytest
from jax._src import compilation_cache

import pausejax
from pausejax.commands import main as cli
from pausejax.commands import search as command
from pausejax.execution import runtime
from pausejax.searches import confirm

from ..alike import alike
from . import folders
from .test_damage import call, damage, fresh
from .test_kills import kill_once, to_its_end
from .warm import Warm

SEARCH = {
    "mode": "bandit",
    "rounds": 75,
    "seeds": 2,
    "network": {"num_clients": 6, "clients_per_round": 2},
    "reward": {"generalization_weight": {"log_uniform": [1.0, 1000.0]}, "privacy_weight": [1.0, 5.0]},
    "policy": [{"name": "pause"}],
}
ASKED = ("--trials", "20", "--lanes", "8", "--metric", "cumulative_pseudo_regret", "--fresh-seeds", "2")
ASKED += ("--no-report",)
LEFT = ("results.zarr", "trials.json", "search_record.json", "confirmation/results.zarr")
"""What must be there at the end, and the same."""


def arguments(spec, out, *more):
    return ["search", str(spec), "--out", str(out), *ASKED, *more]


class Kill(BaseException):
    """What nothing in the package catches."""


@pytest.fixture(scope="module")
def searches(tmp_path_factory):
    """A search that came to its end and one that was killed in mid-search, with parts."""
    folder = tmp_path_factory.mktemp("searches")
    spec = folders.write(folder, SEARCH)
    assert call(arguments(spec, folder / "finished", "--quiet")) == (cli.OK, "", "")
    steps = 0

    def die(self, state):
        nonlocal steps
        steps += 1
        if steps == 7:
            raise Kill

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("pausejax.searches.progress.SearchMeter.__call__", die)
        assert "Kill" in call(arguments(spec, folder / "killed", "--log", "text"))[2]
    assert len(list((folder / "killed" / "parts").glob("*.npz"))) == 7
    return spec, folder


@contextlib.contextmanager
def without_confirmation():
    """Fresh seeds are a study, and studies are attacked elsewhere."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(confirm, "confirm", lambda result, *_, **__: result)
        patch.setattr(command, "_finish", lambda *_: None)
        yield


def files_of(out):
    """Files by kind: every part and file of a store is one of its kind."""
    kinds = {}
    for path in sorted(path for path in out.rglob("*") if path.is_file()):
        place = path.relative_to(out).parts
        kinds.setdefault((place[0], path.suffix) if len(place) > 1 else place, []).append(path)
    return kinds


def damaged_copy(folder, name, out, rng):
    """A copy of a folder of which one file is damaged, or two have changed places; what was done."""
    shutil.rmtree(out, ignore_errors=True)
    shutil.copytree(folder / name, out)
    kinds = files_of(out)
    same = kinds[rng.choice(sorted(kinds))]
    path = rng.choice(same)
    if len(same) > 1 and rng.random() < 0.25:
        other = rng.choice([one for one in same if one != path])
        content = path.read_bytes()
        path.write_bytes(other.read_bytes())
        other.write_bytes(content)
        return f"{name}: {path.relative_to(out)} and {other.relative_to(out)} changed places"
    return f"{name}: {path.relative_to(out)}: {damage(path, rng)}"


def differs(out, expected, left):
    """In what a folder that has been gone on with is not the expected one; None: in nothing."""
    for name in left:
        if not name.endswith(".zarr"):
            if (out / name).read_bytes() != (expected / name).read_bytes():
                return f"another {name}"
        elif not alike(loaded(expected / name), pausejax.open((out / name).parent).load()):
            return f"other numbers in {name}"
    return None


@functools.cache
def loaded(path):
    """A result that stays as it is."""
    return pausejax.open(path.parent).load()


def goes_on_falsely(spec, out, expected, left):
    """What is wrong with the same command on a damaged folder, or None: it is refused, or ends the same."""
    code, err, trace = call(arguments(spec, out, "--quiet"))
    if trace or code not in (cli.OK, cli.FAILED, cli.BAD_SPEC):
        return code, f"exit code {code}, {trace}"
    if code != cli.OK:
        return code, None if 1 <= len(err.splitlines()) <= 3 else f"says {err!r}"
    return code, differs(out, expected, left)


@pytest.mark.slow
@pytest.mark.usefixtures("compiled_once")
def test_no_damage_to_a_search_is_believed(searches, tmp_path, request):
    spec, folder = searches
    first, count = request.config.getoption("--first-seed"), request.config.getoption("--damages")
    wrongs, whole = [], 0
    for number in range(first, first + count):
        rng = random.Random(f"search {number}")
        name = "finished" if rng.random() < 0.2 else "killed"
        what = damaged_copy(folder, name, tmp_path / "out", rng)
        left, shorter = (
            (LEFT, contextlib.nullcontext) if name == "finished" else (LEFT[:2], without_confirmation)
        )
        try:
            with shorter():
                code, wrong = goes_on_falsely(spec, tmp_path / "out", folder / "finished", left)
            whole += code == cli.OK
        except Exception:
            wrong = traceback.format_exc(limit=-4)
        wrongs += [f"{number}, {what}: {wrong}"] if wrong else []
        if number % 50 == 49:
            print(f"{number + 1 - first} damages: {whole} ended as the whole; {wrongs}", flush=True)
    print(f"{count} damages from seed {first}: {whole} ended as the whole, {count - whole} in a line")
    assert not wrongs, f"{len(wrongs)} of {count}:\n" + "\n".join(wrongs[:20])
    assert count < 20 or whole > count / 2


@pytest.mark.slow
def test_damaged_programs_cost_a_search_time_alone(searches, tmp_path, monkeypatch, request):
    spec, folder = searches
    monkeypatch.setenv("PAUSEJAX_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(compilation_cache, "get_file_cache", compilation_cache.get_file_cache)
    before = jax.config.values["jax_compilation_cache_dir"]
    rng = random.Random(request.config.getoption("--first-seed"))

    def resume():
        shutil.rmtree(tmp_path / "out", ignore_errors=True)
        shutil.copytree(folder / "killed", tmp_path / "out")
        fresh(monkeypatch)
        with warnings.catch_warnings(), without_confirmation():
            warnings.filterwarnings("ignore", "Error (reading|writing) persistent compilation cache")
            assert call(arguments(spec, tmp_path / "out", "--quiet")) == (cli.OK, "", "")
        assert not differs(tmp_path / "out", folder / "finished", LEFT[:2])

    try:
        jax.config.update("jax_compilation_cache_dir", None)
        runtime.set_up_jax()
        resume()
        kept = sorted((tmp_path / "cache" / "compiled").glob("*-cache"))
        assert kept
        for _ in range(-(-request.config.getoption("--damages") // 30)):
            for path in rng.sample(kept, min(len(kept), 10)):
                if path.is_dir() or path.is_symlink() or not path.exists():
                    continue  # damaged for good, and nothing is kept in its place
                damage(path, rng)
            resume()
    finally:
        jax.config.update("jax_compilation_cache_dir", before)
        fresh(monkeypatch)


@pytest.mark.slow
def test_a_killed_search_ends_as_one_that_was_not(tmp_path, request):
    kills = -(-request.config.getoption("--kills") // 2)
    rng = random.Random(f"searches {request.config.getoption('--first-seed')}")
    spec = folders.write(tmp_path, SEARCH)
    hits = tries = rounds = 0
    with Warm() as warm:

        def start(out):
            return warm.start(arguments(spec, out, "--log", "json"))

        to_its_end(start(tmp_path / "first"))  # compiles
        begun = time.monotonic()
        said = len(to_its_end(start(tmp_path / "whole")))
        took = time.monotonic() - begun
        assert not differs(tmp_path / "first", tmp_path / "whole", LEFT)
        while hits < kills and tries < 10 * kills:
            out, met = tmp_path / f"out-{rounds}", True
            parts = 0
            for again in range(rng.randrange(1, 6)):
                met = kill_once(start(out), rng, took / (1 + 0.3 * again), said)
                hits, tries = hits + met, tries + 1
                now = len(list((out / "parts").glob("*.npz")))
                assert now >= parts or (out / "results.zarr").exists(), "runs are lost"
                parts = now
                if not met or hits == kills:
                    break
            if met:
                to_its_end(start(out))
            assert not differs(out, tmp_path / "whole", LEFT)
            shutil.rmtree(out)
            rounds += 1
            print(f"search: {hits} kills of a living process, {tries - hits} came too late", flush=True)
    assert hits == kills
