"""`pausejax data` as a user meets it: pictures, a few lines, and one line for each mistake."""

import sys

import numpy as np
import pytest

from pausejax import data
from pausejax.commands import main as cli
from pausejax.data import partition, pictures
from pausejax.data.tfds import SOURCES


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """An empty folder for the cache and the prepared copies: nothing of this machine's is read."""
    monkeypatch.setenv("PAUSEJAX_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("PAUSEJAX_DATA_DIR", str(tmp_path / "prepared"))
    return tmp_path


@pytest.mark.slow
def test_draws_samples_and_the_partition_that_a_study_would_use(folder, capsys):
    arguments = ["data", "digits", "--out", str(folder / "a" / "b"), "--partition", "dirichlet_quantity"]
    arguments += ["--num-clients", "12", "--seed", "3", "--set", "concentration=0.5", "--set", "batch_size=7"]
    assert cli.main(arguments) == cli.OK
    shown = " ".join(capsys.readouterr().out.split())
    labels = data.load("digits").train_targets
    expected = partition.dirichlet_quantity(labels, 12, 3, batch_size=7, concentration=0.5)
    assert f"1,437 images, {expected.sizes.min()} to {expected.sizes.max()} training images a client" in shown
    counts = expected.label_counts(labels)
    assert f"{(counts.max(axis=1) / expected.sizes).mean():.0%} of the client's images" in shown
    assert "1,437 training and 360 test images, 8×8×1, 10 classes" in shown
    for name in ("digits_samples", "digits_dirichlet_quantity"):
        assert (folder / "a" / "b" / f"{name}.png").read_bytes()[1:4] == b"PNG"
        assert (folder / "a" / "b" / f"{name}.pdf").read_bytes()[:4] == b"%PDF"


@pytest.mark.slow
def test_quiet_prints_nothing_and_a_cut_is_respected(folder, capsys):
    arguments = ["data", "digits", "--out", str(folder), "--set", "data.train_samples=600"]
    assert cli.main([*arguments, "--quiet"]) == cli.OK
    assert capsys.readouterr().out == ""
    assert cli.main(arguments) == cli.OK
    assert "600 images, 20 to 20 training images a client" in " ".join(capsys.readouterr().out.split())


@pytest.mark.slow
def test_mnist_is_prepared_once(folder, shared, capsys, monkeypatch):
    arguments = ["data", "mnist", "--out", str(folder), "--num-clients", "300", "--partition", "shards"]
    copies = ["--data-dir", str(shared / "tensorflow_datasets")]
    assert cli.main([*arguments, *copies]) == cli.OK
    assert "60,000 images, 200 to 200 training images a client" in " ".join(capsys.readouterr().out.split())
    assert (folder / "cache" / "data" / f"mnist-{SOURCES['mnist'].version}.npz").is_file()
    assert cli.main(arguments) == cli.OK  # there is no prepared copy in the default folder: the cache is read


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["minst"], 2, 'data.dataset = "minst": must be one of digits, mnist, fashion_mnist, cifar10'),
        (["fashion_mnist"], 1, "tfds build fashion_mnist:3.0.1 --file_format=array_record"),
        (["digits", "--partition", "even"], 2, 'data.partition = "even": must be one of iid, dirichlet_'),
        (["digits", "--num-clients", "72"], 2, "72 clients with one minibatch of 20 samples each need 1440"),
        (["digits", "--num-clients", "0"], 2, "network.num_clients = 0: must be an integer >= 1"),
        (["digits", "--seed", "-1"], 2, "seeds = [-1]: must be a count"),
        (
            ["digits", "--partition", "dirichlet_label", "--set", "concentration=[1, 2]"],
            2,
            "concentration: must have one value, not several",
        ),
        (["digits", "--set", "seeds=2"], 2, "seeds: must have one value, not several"),
        (["digits", "--set", "data.concentratoin=1"], 2, "did you mean 'concentration'"),
        (
            ["digits", "--partition", "shards", "--set", "shards_per_client=90"],
            2,
            "shards_per_client: must be from 1 to 47",
        ),
        (["digits", "--out", "{file}"], 1, "File exists"),
    ],
)
def test_mistakes_are_one_line_and_an_exit_code(folder, monkeypatch, capsys, arguments, code, message):
    monkeypatch.setitem(sys.modules, "tensorflow", None)  # nothing is fetched
    (folder / "file").touch()
    assert cli.main(["data", *(argument.format(file=folder / "file") for argument in arguments)]) == code
    captured = capsys.readouterr()
    assert message in captured.err and "Traceback" not in captured.err
    assert len(captured.err.strip().splitlines()) == 1
    assert not list(folder.rglob("*.png"))


def test_many_clients_are_drawn_by_size():
    labels = data.load("digits").train_targets
    shares = partition.dirichlet_quantity(labels, 70, 0, batch_size=1, concentration=0.5)
    bars = pictures.partition_picture(shares, labels).axes[0].patches
    heights = np.array([bar.get_height() for bar in bars]).reshape(10, 70)
    np.testing.assert_array_equal(heights.sum(axis=0), np.sort(shares.sizes)[::-1])
    biggest = np.argmax(shares.sizes)
    np.testing.assert_array_equal(heights[:, 0], shares.label_counts(labels)[biggest])
