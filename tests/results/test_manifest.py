"""A result folder from elsewhere runs nothing, and no bit of it changes unseen."""

import json

import numpy as np
import pytest
import xarray as xr

import pausejax
from pausejax.commands import main as cli
from pausejax.results import manifest
from pausejax.results.folder import Folder

SPEC = 'mode = "bandit"\nrounds = 6\nseeds = 2\n[network]\nK = 5\nm = 2\n[[policy]]\nname = "random"\n'


@pytest.fixture(scope="module")
def study(tmp_path_factory):
    folder = tmp_path_factory.mktemp("study")
    (folder / "spec.toml").write_text(SPEC)
    run = ["run", str(folder / "spec.toml"), "--out", str(folder / "out"), "--quiet", "--no-report"]
    assert cli.main(run) == cli.OK
    return folder / "out", run


def test_every_flipped_bit_of_what_describes_the_runs_is_refused_on_open(study, capsys):
    out, run = study
    expected = pausejax.open(out).load()
    described = set(manifest.described(Folder(out), "results.zarr")) | {manifest.NAME}
    rng, store = np.random.default_rng(0), out / "results.zarr"
    flips = 0
    for name in sorted(described):
        path = store / name
        content = path.read_bytes()
        for place in rng.integers(0, len(content), 4):
            altered = bytearray(content)
            altered[place] ^= 1 << int(rng.integers(8))
            path.write_bytes(bytes(altered))
            with pytest.raises(ValueError, match=r"results\.zarr is damaged"):
                pausejax.open(out)
            flips += 1
        path.write_bytes(content)
    assert flips > 200
    # The command says so in one line, and the same study makes it whole.
    (store / ".zmetadata").write_bytes(b"{")
    assert cli.main(["report", str(out), "--quiet"]) == cli.FAILED
    assert capsys.readouterr().err.count("\n") == 1
    assert cli.main(run) == cli.OK
    xr.testing.assert_identical(pausejax.open(out).load(), expected)


@pytest.mark.parametrize("codec", ["pickle", "zlib", "json2"])
def test_a_codec_that_results_are_not_written_with_is_refused_before_anything_is_decoded(study, codec):
    out, run = study
    store = out / "results.zarr"
    path = store / "reward" / ".zarray"
    described = json.loads(path.read_text())
    described["filters"] = [{"id": codec}]
    path.write_text(json.dumps(described))
    # Whoever can write here can seal it as well.
    manifest.seal(Folder(out), "results.zarr")
    with pytest.raises(ValueError, match=f"names the codec '{codec}'; nothing was decoded"):
        pausejax.open(out)
    assert cli.main(run) == cli.OK
    pausejax.open(out).load()


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
    from pausejax.results import store

    consolidate = store.consolidate

    def cleared(folder, plan):
        for name in folder.names("parts"):
            folder.remove(f"parts/{name}")
        return consolidate(folder, plan)

    monkeypatch.setattr(store, "consolidate", cleared)
    (tmp_path / "spec.toml").write_text(SPEC)
    run = ["run", str(tmp_path / "spec.toml"), "--out", str(tmp_path / "out"), "--quiet", "--no-report"]
    assert cli.main(run) == cli.FAILED
    assert "2 runs that were finished are no longer there" in capsys.readouterr().err
    monkeypatch.setattr(store, "consolidate", consolidate)
    assert cli.main(run) == cli.OK


def test_a_wider_study_of_the_folder_keeps_what_it_has_finished(tmp_path):
    """It has begun while the narrower one ran, which then ends first."""
    from pausejax import kinds
    from pausejax.results import store
    from pausejax.study.plan import make_plan

    document = {"mode": "bandit", "rounds": 6, "network": {"K": 5, "m": 2}, "policy": [{"name": "random"}]}
    narrow, wide = (make_plan(kinds.parse({**document, "seeds": seeds})) for seeds in (2, 4))
    folder = Folder(tmp_path)
    result = pausejax.simulate("random", mode="bandit", rounds=6, K=5, m=2, seeds=4)
    arrays = {name: result[name].values for name in result.data_vars}
    store.prepare(folder, narrow)
    store.write_part(folder, narrow.identities, {name: array[:2] for name, array in arrays.items()})
    store.prepare(folder, wide)
    store.write_part(folder, wide.identities[2:3], {name: array[2:3] for name, array in arrays.items()})
    assert store.consolidate(folder, narrow) == 0
    assert store.examine(folder, wide).identities == set(wide.identities[:3])
