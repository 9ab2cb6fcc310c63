"""A study that is extended while somebody reads it, or killed while a new result takes its place."""

import pickle
import shutil

import fsspec
import numpy as np
import pytest
import xarray as xr

import pausejax
from pausejax.results import blocks, exchange, manifest, study_folder
from pausejax.results.folder import Folder

from .studies import Killed, expected, finish, make

EXTENDED = "results.zarr has been extended or removed since it was opened. Open it again"

# The old result is opened while a larger study is unfinished.
pytestmark = pytest.mark.filterwarnings("ignore:.*runs of a larger study")


@pytest.fixture(autouse=True)
def _small_blocks(monkeypatch):
    monkeypatch.setattr(blocks, "_BLOCK_RUNS", 3)


SMALL, LARGE = make(seeds=2), make(seeds=4)


def test_an_opened_result_is_never_read_as_another(folder):
    """Extending moves all runs of the second policy: the old places of a chunk hold other runs now."""
    finish(folder, SMALL)
    early, late = pausejax.open(folder.location), pausejax.open(folder.location)
    xr.testing.assert_identical(early.load(), expected(SMALL))
    finish(folder, LARGE)
    xr.testing.assert_identical(early, expected(SMALL))
    for name in late.data_vars:
        with pytest.raises(OSError, match=EXTENDED) as caught:
            late[name].isel(run=slice(2, 4)).load()
        assert "\n" not in str(caught.value)
    assert late["policy"].values.tolist() == expected(SMALL)["policy"].values.tolist()
    xr.testing.assert_identical(pausejax.open(folder.location).load(), expected(LARGE))


@pytest.mark.slow
def test_whoever_opens_it_meanwhile_has_one_result_or_the_other(folder, monkeypatch):
    """Opens and reads it after each step of the exchange, of which there are many under a URL."""
    finish(folder, SMALL)
    seen, steps_done, real = [], 0, {name: getattr(Folder, name) for name in ("move", "remove")}
    memory = fsspec.filesystem("memory")
    steps = {
        name: getattr(type(memory), name) for name in ("cp_file", "_rm", "rm_file") if hasattr(memory, name)
    }

    def look():
        nonlocal steps_done
        steps_done += 1
        if not folder.is_local and steps_done % 40:  # each takes a while
            return
        opened = pausejax.open(folder.location)
        plan = SMALL if opened.sizes["run"] == len(SMALL.runs) else LARGE
        xr.testing.assert_identical(opened.load(), expected(plan))
        seen.append(plan is LARGE)

    def looking(call):
        def step(*arguments, **more):
            done = call(*arguments, **more)
            look()
            return done

        return step

    with monkeypatch.context() as patch:
        exchanged = exchange.replace

        def watched(*arguments):
            for name, call in real.items():
                patch.setattr(Folder, name, looking(call))
            for name, call in steps.items():
                patch.setattr(type(memory), name, looking(call))
            exchanged(*arguments)
            patch.undo()

        patch.setattr(study_folder, "replace", watched)
        finish(folder, LARGE)
    assert seen == sorted(seen) and {False, True} == set(seen)
    assert len(seen) > 2 and steps_done > (2 if folder.is_local else 300)


def test_a_chunk_that_is_gone_is_an_error_and_no_fill_values(tmp_path):
    finish(Folder(tmp_path), SMALL)
    opened = pausejax.open(tmp_path)
    (tmp_path / "results.zarr/reward/c/1/0").unlink()
    assert np.isfinite(opened["reward"][:3].values).all()
    with pytest.raises(ValueError, match=r"is damaged \(reward/c/1/0\)"):
        opened["reward"].values  # noqa: B018
    shutil.rmtree(tmp_path / "results.zarr")
    with pytest.raises(OSError, match="extended or removed"):
        opened["reward"].values  # noqa: B018


@pytest.mark.slow
def test_an_opened_result_can_be_sent_to_another_process(tmp_path):
    finish(Folder(tmp_path), SMALL)
    sent = pickle.loads(pickle.dumps(pausejax.open(tmp_path)))
    xr.testing.assert_identical(sent.load(), expected(SMALL))
    sent = pickle.dumps(pausejax.open(tmp_path))
    finish(Folder(tmp_path), LARGE)
    with pytest.raises(OSError, match=EXTENDED):
        pickle.loads(sent).load()


@pytest.mark.slow
def test_runs_that_were_seen_in_an_old_result_are_not_taken_from_a_new_one(folder):
    """Whoever puts a result together without a lock would label them as others."""
    finish(folder, SMALL)
    found = study_folder.examine(folder, LARGE)
    finish(folder, LARGE)
    for source in found.blocks:
        with pytest.raises(OSError, match=EXTENDED):
            source.load()


def killed_in_mid_exchange(folder, monkeypatch):
    """A study whose extension was killed between the two renames."""
    finish(folder, SMALL)

    def move(self, old, new, *seal, real=Folder.move):
        if new == "results.zarr":
            raise Killed
        real(self, old, new, *seal)

    with monkeypatch.context() as patch:
        patch.setattr(Folder, "move", move)
        with pytest.raises(Killed):
            finish(folder, LARGE)
    assert not folder.exists("results.zarr") and folder.exists(".results.zarr.replaced")


@pytest.mark.slow
def test_a_result_is_there_after_a_kill_between_two_renames(folder, monkeypatch):
    killed_in_mid_exchange(folder, monkeypatch)
    xr.testing.assert_identical(pausejax.open(folder.location).load(), expected(SMALL))
    assert study_folder.examine(folder, LARGE).in_result == set(SMALL.identities)
    assert finish(folder, LARGE) == (0, 0)
    xr.testing.assert_identical(pausejax.open(folder.location).load(), expected(LARGE))
    assert not folder.exists(".results.zarr.replaced")


@pytest.mark.slow
@pytest.mark.parametrize("replaced", [True, False])
def test_what_is_left_of_a_store_is_never_taken_for_the_old_result(folder, monkeypatch, replaced):
    """Under a URL a store is moved file by file, so a kill leaves some of them in either place."""
    killed_in_mid_exchange(folder, monkeypatch)
    folder.write("results.zarr/zarr.json", b"{}")
    if not replaced:
        folder.remove(".results.zarr.replaced")
    assert finish(folder, LARGE)[0] == 0
    xr.testing.assert_identical(pausejax.open(folder.location).load(), expected(LARGE))


@pytest.mark.slow
def test_saving_one_run_does_not_remove_the_others_after_such_a_kill(folder, monkeypatch):
    killed_in_mid_exchange(folder, monkeypatch)
    for name in [f"parts/{name}" for name in folder.names("parts")]:
        folder.remove(name)
    folder.remove("parts")
    one = expected(SMALL).isel(run=[0])
    with pytest.raises(ValueError, match="holds 3 runs that this result lacks"):
        pausejax.save(one, folder.location)
    xr.testing.assert_identical(pausejax.open(folder.location).load(), expected(SMALL))
    pausejax.save(expected(LARGE), folder.location)
    xr.testing.assert_identical(pausejax.open(folder.location).load(), expected(LARGE))


def test_a_store_without_all_of_its_chunks_is_not_sealed(tmp_path):
    folder = Folder(tmp_path)
    finish(folder, SMALL)
    folder.remove("results.zarr/manifest.json")
    for name in ("reward/c/1/0", "policy/c/0", "counts/c/0/0"):
        kept = folder.read(f"results.zarr/{name}")
        folder.remove(f"results.zarr/{name}")
        with pytest.raises(FileNotFoundError, match=f"{name} was removed"):
            blocks.seal(folder, "results.zarr")
        folder.write(f"results.zarr/{name}", kept)
    blocks.seal(folder, "results.zarr")
    assert manifest.read(folder, "results.zarr").files
