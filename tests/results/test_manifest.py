"""A result folder from elsewhere runs nothing, and no bit of it changes unseen."""

import json
import os
import pickle
import shutil
from pathlib import Path

import numpy as np
import pytest
import xarray as xr

import pausejax
from pausejax.commands import main as cli
from pausejax.results import manifest
from pausejax.results.folder import Folder
from pausejax.study.study import FORMAT

from ..alike import assert_alike

SPEC = 'mode = "bandit"\nrounds = 6\nseeds = 2\n[network]\nK = 5\nm = 2\n[[policy]]\nname = "random"\n'


@pytest.fixture(scope="module")
def study(tmp_path_factory):
    folder = tmp_path_factory.mktemp("study")
    (folder / "spec.toml").write_text(SPEC)
    run = ["run", str(folder / "spec.toml"), "--out", str(folder / "out"), "--quiet", "--no-report"]
    assert cli.main(run) == cli.OK
    return folder / "out", run


@pytest.mark.slow
def test_every_flipped_bit_of_what_describes_the_runs_is_refused_on_open(study, capsys):
    out, run = study
    expected = pausejax.open(out).load()
    described = {*manifest.read(Folder(out), "results.zarr").described, manifest.NAME}
    rng, store = np.random.default_rng(0), out / "results.zarr"
    flips = 0
    for name in sorted(described):
        path = store / name
        content = path.read_bytes()
        for place in rng.integers(0, len(content), 1):
            altered = bytearray(content)
            altered[place] ^= 1 << int(rng.integers(8))
            path.write_bytes(bytes(altered))
            with pytest.raises(ValueError, match=r"results\.zarr is damaged"):
                pausejax.open(out)
            flips += 1
        path.write_bytes(content)
    assert flips > 50
    # The command says so in one line, and the same study makes it whole.
    (store / "zarr.json").write_bytes(b"{")
    assert cli.main(["report", str(out), "--quiet"]) == cli.FAILED
    assert capsys.readouterr().err.count("\n") == 1
    assert cli.main(run) == cli.OK
    xr.testing.assert_identical(pausejax.open(out).load(), expected)


def test_files_that_a_system_writes_into_folders_do_no_harm(study, tmp_path, capsys):
    """Finder, Explorer, JupyterLab and NFS do; the result must not be simulated again."""
    whole, run = study
    out = tmp_path / "out"
    shutil.copytree(whole, out)
    for name in (
        ".DS_Store",
        "reward/._zarr.json",
        ".nfs01",
        "reward/Thumbs.db",
        ".ipynb_checkpoints/zarr.json",
    ):
        (out / "results.zarr" / name).parent.mkdir(exist_ok=True)
        (out / "results.zarr" / name).write_bytes(b"made by the system")
    xr.testing.assert_identical(pausejax.open(out).load(), pausejax.open(whole).load())
    assert cli.main([*run[:3], str(out), *run[4:]]) == cli.OK
    assert "again" not in capsys.readouterr().err
    assert (out / "results.zarr" / ".DS_Store").exists()


@pytest.mark.parametrize("place", ["reward/zarr.json", "zarr.json"])
@pytest.mark.parametrize(
    ("name", "configuration"),
    [("numcodecs.pickle", {}), ("numcodecs.zlib", {}), ("gzip", {"level": 1}), ("blosc", {"cname": "lz4"})],
)
def test_a_codec_that_results_are_not_written_with_is_refused_before_anything_is_decoded(
    study, place, name, configuration
):
    out, run = study
    path = out / "results.zarr" / place
    described = json.loads(path.read_text())
    array = described["consolidated_metadata"]["metadata"]["reward"] if place == "zarr.json" else described
    array["codecs"].append({"name": name, "configuration": configuration})
    path.write_text(json.dumps(described))
    # Whoever can write here can seal it as well.
    manifest.seal(Folder(out), "results.zarr")
    with pytest.raises(
        ValueError, match=rf"codecs must be among .*, not '{name}[ a-z0-9]*'. Nothing was decoded"
    ):
        pausejax.open(out)
    assert cli.main(run) == cli.OK
    pausejax.open(out).load()


class Payload:
    """What runs when it is unpickled."""

    def __init__(self, witness):
        self.witness = witness

    def __reduce__(self):
        return Path.touch, (self.witness,)


def hostile(out, witness):
    """A store in the Zarr format before, whose values are unpickled by whoever decodes them."""
    store = out / "results.zarr"
    (store / "reward").mkdir(parents=True)
    array = {"zarr_format": 2, "shape": [1], "chunks": [1], "dtype": "|O", "fill_value": None, "order": "C"}
    files = {
        ".zgroup": {"zarr_format": 2},
        ".zattrs": {"format": FORMAT},
        "reward/.zarray": {**array, "compressor": None, "filters": [{"id": "pickle"}]},
        "reward/.zattrs": {"_ARRAY_DIMENSIONS": ["run"]},
    }
    for name, content in files.items():
        (store / name).write_text(json.dumps(content))
    (store / "reward" / "0").write_bytes(pickle.dumps(Payload(witness)))
    manifest.seal(Folder(out), "results.zarr")


def test_a_hostile_store_runs_nothing(study, tmp_path, capsys):
    whole, run = study
    out, witness = tmp_path / "out", tmp_path / "witness"
    hostile(out, witness)
    with pytest.raises(ValueError, match="belongs to another format"):
        pausejax.open(out)
    for command in (["report"], ["export"], [*run[:2], "--out"]):
        assert cli.main([*command, str(out)]) in (cli.FAILED, cli.BAD_SPEC)
    shutil.copy(whole / "labels.npz", out)  # so that the run takes the store for its own
    assert cli.main([*run[:3], str(out), *run[4:]]) == cli.OK
    assert not witness.exists()
    pickle.loads(pickle.dumps(Payload(witness)))
    assert witness.exists(), "the payload would do nothing anyway"


@pytest.mark.parametrize(
    "name", ["results.zarr/reward/c/0/0", "results.zarr/zarr.json", "parts/0123456789abcdef.npz"]
)
def test_nobody_waits_for_a_pipe(study, tmp_path, name):
    out, run = study
    copy = tmp_path / "out"
    shutil.copytree(out, copy)
    (copy / name).unlink(missing_ok=True)
    (copy / name).parent.mkdir(exist_ok=True)
    os.mkfifo(copy / name)
    if "parts" not in name:
        with pytest.raises(ValueError, match="must be a regular file"):
            pausejax.open(copy)
    assert cli.main([*run[:3], str(copy), *run[4:]]) == cli.OK
    assert_alike(pausejax.open(copy).load(), pausejax.open(out).load())


def test_files_of_others_stay(tmp_path):
    (tmp_path / "spec.toml").write_text(SPEC)
    for place in ("parts/mine.npz", "checkpoints/notes.txt", "mine.txt"):
        (tmp_path / "out" / place).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "out" / place).write_text("mine")
    run = ["run", str(tmp_path / "spec.toml"), "--out", str(tmp_path / "out"), "--quiet", "--no-report"]
    assert cli.main(run) == cli.OK
    for place in ("parts/mine.npz", "checkpoints/notes.txt", "mine.txt"):
        assert (tmp_path / "out" / place).read_text() == "mine"


def test_a_folder_that_is_cleared_in_mid_run_is_no_success(tmp_path, capsys, monkeypatch):
    from pausejax.results import study_folder

    finish = study_folder.build_if_complete

    def cleared(folder, plan, **options):
        for name in folder.names("parts"):
            folder.remove(f"parts/{name}")
        return finish(folder, plan, **options)

    monkeypatch.setattr(study_folder, "build_if_complete", cleared)
    (tmp_path / "spec.toml").write_text(SPEC)
    run = ["run", str(tmp_path / "spec.toml"), "--out", str(tmp_path / "out"), "--quiet", "--no-report"]
    assert cli.main(run) == cli.FAILED
    assert "2 finished runs are missing" in capsys.readouterr().err
    monkeypatch.setattr(study_folder, "build_if_complete", finish)
    assert cli.main(run) == cli.OK


@pytest.mark.slow
def test_a_wider_study_of_the_folder_keeps_what_it_has_finished(tmp_path):
    """It has begun while the narrower one ran, which then ends first."""
    from pausejax import kinds
    from pausejax.results import study_folder
    from pausejax.study.plan import make_plan

    document = {"mode": "bandit", "rounds": 6, "network": {"K": 5, "m": 2}, "policy": [{"name": "random"}]}
    narrow, wide = (make_plan(kinds.parse({**document, "seeds": seeds})) for seeds in (2, 4))
    folder = Folder(tmp_path)
    result = pausejax.simulate("random", mode="bandit", rounds=6, K=5, m=2, seeds=4)
    arrays = {name: result[name].values for name in result.data_vars}
    study_folder.prepare(folder, narrow)
    study_folder.write_part(folder, narrow.identities, {name: array[:2] for name, array in arrays.items()})
    study_folder.prepare(folder, wide)
    study_folder.write_part(
        folder, wide.identities[2:3], {name: array[2:3] for name, array in arrays.items()}
    )
    assert study_folder.build_if_complete(folder, narrow) == 0
    assert study_folder.examine(folder, wide).identities == set(wide.identities[:3])
