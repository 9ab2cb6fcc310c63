"""Inputs that ask for too much, mean nothing, or want something of somebody else: refused in one line."""

import os
import subprocess
import sys
import zipfile

import numpy as np
import pytest

import pausejax
from pausejax.commands import main as cli
from pausejax.results.folder import Folder

from . import folders, specs
from .test_mutations import call

pytestmark = pytest.mark.usefixtures("little_memory")

BANDIT = {**specs.BANDIT, "rounds": 6, "policy": [{"name": "pause"}]}
TRACE = ["network.latency=trace"]
WHO = ["network.availability=availability_trace"]
NPZ = ["data.dataset=npz"]


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A folder of specs and of files that are not what they seem."""
    folder = tmp_path_factory.mktemp("hostile")
    folders.write(folder, BANDIT, "bandit.toml")
    folders.write(folder, specs.TRAINING, "training.toml")
    header = {"descr": "<f8", "fortran_order": False, "shape": (2**40, 6)}
    with (folder / "huge.npy").open("wb") as file:
        np.lib.format.write_array_header_2_0(file, header)
    for name, number in (("large", 1e300), ("small", 1e-300), ("edge", 3e38), ("denormal", 1e-40)):
        np.save(folder / f"{name}.npy", np.full((3, 6), number))
    for name, number in (("half", 0.5), ("below", -0.3), ("imaginary", 1j)):
        np.save(folder / f"{name}.npy", np.full((3, 6), number))
    with zipfile.ZipFile(folder / "zip.npy", "w") as archive:
        archive.writestr("a", "b")
    with zipfile.ZipFile(folder / "huge.npz", "w") as archive:
        for name in ("x_train", "y_train", "x_test", "y_test"):
            archive.write(folder / "huge.npy", f"{name}.npy")
    os.mkfifo(folder / "pipe.npy")
    (folder / "deep.toml").write_text("a = " + "[" * 3000 + "]" * 3000)
    (folder / "deeper.toml").write_text(f"[{'.'.join('a' * 5000)}]")
    (folder / "digits.toml").write_text("seeds = " + "9" * 5000)
    return folder


@pytest.mark.parametrize(
    ("spec", "overrides", "said"),
    [
        ("bandit", ["seeds=4294967295"], "must be a count from 1 to 1048576"),
        ("bandit", ["network.num_clients=2147483647"], "<= 16777216"),
        ("bandit", ["network.num_clients=16777216", "seeds=50"], "times the 100 runs must be <= 268435456"),
        ("bandit", ["rounds=2147483647"], "<= 16777216"),
        ("bandit", [*TRACE, "network.trace_file=huge.npy"], "its header announces 52776558133248 bytes"),
        ("training", [*NPZ, "data.data_file=huge.npz"], "can't be read: MemoryError"),
        ("training", [*NPZ, "data.data_file=huge.npy"], "can't be read: MemoryError"),
        ("bandit", [*TRACE, "network.trace_file=zip.npy"], "not a .npy file"),
        ("bandit", [*TRACE, "network.trace_file=pipe.npy"], "there is no file"),
        ("bandit", [*TRACE, "network.trace_file=/dev/zero"], "there is no file"),
        ("bandit", [*TRACE, "network.trace_file=http://127.0.0.1:9/x.csv"], "there is no file"),
        ("bandit", [*TRACE, "network.trace_file=large.npy"], "from 1e-15 to 1e+15"),
        ("bandit", [*TRACE, "network.trace_file=small.npy"], "from 1e-15 to 1e+15"),
        ("bandit", [*TRACE, "network.trace_file=edge.npy"], "from 1e-15 to 1e+15"),
        ("bandit", [*TRACE, "network.trace_file=denormal.npy"], "from 1e-15 to 1e+15"),
        ("bandit", [*TRACE, "network.trace_file=below.npy"], "must hold latencies >= 0, but holds -0.3"),
        (
            "bandit",
            [*TRACE, "network.trace_file=imaginary.npy"],
            "must hold real numbers, not complex128",
        ),
        ("bandit", [*WHO, "network.availability_file=half.npy"], "must hold only 0 and 1, but holds 0.5"),
        ("deep", [], "nested too deeply"),
        ("deeper", [], "nested too deeply"),
        ("digits", [], "must be valid TOML"),
        ("bandit", ["network.min_latency=1e-40"], "from 1e-15 to 1e+15"),
        ("bandit", ["network.min_latency=0.3"], "must be <= fast_latency = 0.2"),
        ("bandit", ["network.min_latency=[0.05, 0.3]"], "0.3: must be <= fast_latency = 0.2"),
        ("bandit", ["network.slow_latency=0.1"], "must be >= fast_latency = 0.2"),
        ("bandit", ["privacy.eps_bar=1e-41"], "from 1e-15 to 1e+15"),
        ("bandit", ["privacy.eta=1e-41"], "from 1e-15 to 1e+15"),
        ("bandit", ["reward.alpha=3e38"], "from 1e-15 to 1e+15"),
        ("bandit", ["network.fast_latency=3e38"], "from 1e-15 to 1e+15"),
        ("training", ["learning_rat=0.1"], "did you mean 'learning_rate'?"),
        ("training", ["momentum=0.9"], "has no effect: no run of this study reads it"),
        ("training", ["momentum=[0.5, 0.9]"], "has no effect: no run of this study reads it"),
        ("bandit", ["training.learning_rate=0.1"], "has no effect: no run of this study reads it"),
        ("bandit", ["selection.annealing_steps=[10, 20]"], "has no effect: no run of this study reads it"),
    ],
)
def test_what_can_not_be_is_one_line(place, monkeypatch, spec, overrides, said):
    monkeypatch.chdir(place)
    arguments = [part for override in overrides for part in ("--set", override)]
    code, _, err, trace = call(["plan", f"{spec}.toml", *arguments])
    assert (code, trace) == (cli.BAD_SPEC, "") and said in err and len(err.splitlines()) == 1


@pytest.mark.parametrize(
    ("section", "axis"),
    [("training", {"momentum": [0.5, 0.9]}), ("data", {"concentration": [1.0, 2.0], "partition": "iid"})],
)
def test_an_axis_that_no_run_reads_is_refused(section, axis):
    own = {**specs.TRAINING[section], **axis}
    with pytest.raises(ValueError, match=r"must be one value, because no run of this study reads it"):
        pausejax.kinds.parse({**specs.TRAINING, section: own})


@pytest.mark.parametrize(
    ("command", "said"),
    [
        (["run", "bandit.toml", "--out", "s3://bucket/x"], "s3fs"),
        (["run", "bandit.toml", "--out", "http://127.0.0.1:9/x"], "127.0.0.1:9"),
        (["run", "bandit.toml", "--out", "nothing://x"], "not known"),
        (["report", "s3://bucket/x"], "s3fs"),
        (["export", "nothing://x"], "not known"),
    ],
)
def test_a_url_that_nobody_can_write_to_is_one_line(place, monkeypatch, command, said):
    monkeypatch.chdir(place)
    monkeypatch.setitem(sys.modules, "s3fs", None)
    monkeypatch.setitem(sys.modules, "aiohttp", None)
    code, _, err, trace = call(command)
    assert (code, trace) == (cli.FAILED, "") and (said in err or "aiohttp" in err)
    assert len(err.splitlines()) == 1


@pytest.mark.parametrize("name", ["a::b", "simplecache::file:///tmp/x", "zip://x::memory://y"])
def test_no_chain_of_file_systems_is_opened(place, monkeypatch, name):
    monkeypatch.chdir(place)
    for command in (["run", "bandit.toml", "--out", name], ["report", name], ["export", name]):
        code, _, err, trace = call(command)
        assert (code, trace) == (2, "") and "must be a folder or one URL, without ::" in err
    with pytest.raises(ValueError, match="without ::"):
        Folder(name)


@pytest.mark.slow
def test_a_result_under_a_url_has_its_charts_there_and_its_table_anywhere(place, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    out = "memory://hostile/out"
    code, shown, _, trace = call(["run", str(place / "bandit.toml"), "--out", out])
    assert (code, trace) == (cli.OK, "") and f"in {out}: " in " ".join(shown.split())
    assert Folder(out).read("cumulative_regret_vs_round.png")[1:4] == b"PNG"
    # Arrow would take these for URLs.
    assert call(["export", out, "--format", "csv", "--out", "file:x::y.csv"])[0] == cli.OK
    assert os.listdir(tmp_path) == ["file:x::y.csv"]


@pytest.mark.parametrize("label", ["[/red]x", ":smile:", "[bold"])
@pytest.mark.slow
def test_marks_of_other_languages_are_letters(place, tmp_path, monkeypatch, label):
    monkeypatch.chdir(tmp_path)
    document = {**BANDIT, "name": label, "policy": [{"name": "random", "label": label}]}
    spec = folders.write(tmp_path, document, f"spec {label.replace('/', '')}.toml")
    out = tmp_path / f"out {label.replace('/', '')}"
    code, shown, err, trace = call(["run", str(spec), "--out", str(out)])
    assert (code, trace) == (cli.OK, "") and label in shown
    code, _, err, _ = call(["plan", str(spec), "--set", f"network.num_clients={label}"])
    assert code == cli.BAD_SPEC and label in err and len(err.splitlines()) == 1


@pytest.mark.parametrize("label", ["a\nb", "\x1b[31m", "a\rb"])
def test_control_characters_reach_no_terminal(tmp_path, label):
    for document in ({**BANDIT, "name": label}, {**BANDIT, "policy": [{"name": "random", "label": label}]}):
        code, _, err, trace = call(["plan", str(folders.write(tmp_path, document))])
        assert (code, trace) == (cli.BAD_SPEC, "") and "control characters" in err
        assert err.removesuffix("\n").isprintable()


@pytest.mark.parametrize("policies", [None, 3, [None], {}, [], "nobody", [{"name": 3}]])
def test_no_policy_is_one_line(policies):
    with pytest.raises(ValueError, match=r"^simulate: policy.*must be"):
        pausejax.simulate(policies, mode="bandit")


@pytest.mark.slow
def test_numbers_of_numpy_are_numbers():
    result = pausejax.simulate(
        "random",
        mode="bandit",
        rounds=np.int64(5),
        eval_every=np.int32(2),
        seeds=np.uint8(2),
        gamma=np.float32(2),
    )
    assert dict(result.sizes) == {"run": 2, "round": 5, "slot": 5, "client": 30}


def test_a_range_is_no_value_for_a_picture(place, tmp_path):
    for swept in ("data.concentration={uniform=[0.1, 1]}", "concentration={uniform=3}", "num_clients=[5, 6]"):
        code, _, err, trace = call(["data", "digits", "--set", swept, "--quiet", "--out", str(tmp_path)])
        assert (code, trace) == (cli.BAD_SPEC, "") and err
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
def test_a_full_disk_in_a_checkpoint_is_one_line(tmp_path):
    """No file may be larger than 100 kB, which the state of 60,000 clients is."""
    network = {"num_clients": 60_000, "clients_per_round": 2}
    spec = folders.write(
        tmp_path, {**BANDIT, "seeds": 1, "rounds": 60, "network": network, "policy": [{"name": "random"}]}
    )
    spec.write_text(spec.read_text().replace("gamma = [\n    1.0,\n    5.0,\n]", "gamma = 1.0"))
    command = folders.command(spec, tmp_path / "out", "--quiet", "--checkpoint-every", "0")
    limited = "import resource as r, signal as s, runpy, sys; s.signal(s.SIGXFSZ, s.SIG_IGN); "
    limited += "r.setrlimit(r.RLIMIT_FSIZE, (100_000,) * 2); sys.argv = sys.argv[1:]; "
    limited += "runpy.run_module('pausejax', run_name='__main__', alter_sys=True)"
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", limited, *command[2:]], capture_output=True, text=True
    )
    assert done.returncode == cli.FAILED
    lines = [line for line in done.stderr.splitlines() if "persistent compilation cache" not in line]
    assert len(lines) == 1, done.stderr
    assert lines[0].endswith("the checkpoint can't be written: File too large")
