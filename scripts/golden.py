"""Hashes every variable of small studies, to show that a change of the code changes no bit.

    python scripts/golden.py before.json                        # before the change
    python scripts/golden.py after.json --against before.json   # after it; exit code 1: some differ

Simulates ten studies in four ways: at once, with two runs side by side, in two shards, and resumed after a
kill. Compare hashes only of one machine and one set of versions, because the processor and XLA change the
last bits. The hash of a variable covers its name, type, shape and values, but not its attributes.
"""

import argparse
import hashlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import tomli_w

import pausejax

NETWORK = {"num_clients": 6, "clients_per_round": 2}
TRAINING = {
    "rounds": 60,
    "eval_every": 10,
    "seeds": 3,
    "network": NETWORK,
    "data": {"train_samples": 240, "partition": "dirichlet_label", "concentration": 3.0},
    "training": {"model": "mlp", "max_steps": 3, "batch_size": 8},
    "policy": [{"name": "pause"}, {"name": "fedavg", "private": False}],
}
BANDIT = {
    "mode": "bandit",
    "rounds": 400,
    "seeds": 3,
    "network": NETWORK,
    "reward": {"gamma": [1.0, 5.0]},
    "policy": [{"name": "pause"}, {"name": "sa_pause", "annealing_steps": 8}, {"name": "random"}],
}
STUDIES = {
    "bandit": BANDIT,
    "mlp": TRAINING,
    "cnn": {
        **TRAINING,
        "data": {"dataset": "npz", "data_file": "pictures.npz"},
        "training": {"model": "cnn_cifar", "max_steps": 2, "batch_size": 4},
        "policy": [{"name": "pause"}],
    },
    "stop_at_latency": {
        **TRAINING,
        "stop_at_latency": 12.0,
        "policy": [{"name": "fastest"}, {"name": "pause"}],
    },
    "persist_optimizer": {**TRAINING, "training": {**TRAINING["training"], "persist_optimizer": True}},
    "own_policy": {**TRAINING, "use": ["sticky.py"], "policy": [{"name": "sticky"}]},
    "ensemble": {
        "mode": "ensemble",
        "rounds": 600,
        "eval_every": 20,
        "seeds": 3,
        "network": {"num_clients": 20},
        "data": {"dataset": "diabetes"},
        "policy": [{"name": "efl_fg"}, {"name": "fedboost"}],
    },
    "buffered": {
        **TRAINING,
        "network": {**NETWORK, "ending": "buffered", "failure_probability": 0.2},
        "privacy": {"mechanism": "gaussian"},
        "policy": [{"name": "pause"}],
    },
    "scaffold": {
        **TRAINING,
        "training": {**TRAINING["training"], "optimizer": "sgd", "federated_algorithm": "scaffold"},
        "policy": [{"name": "random"}],
    },
    "two_devices": {**TRAINING, "seeds": 4, "policy": [{"name": "pause"}]},
}
WAYS = ("whole", "two_lanes", "two_shards", "killed")


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("out", type=Path, help="file for the hashes")
    parser.add_argument("--against", type=Path, help="file of hashes to compare with")
    parser.add_argument("--study", nargs="+", choices=STUDIES, default=list(STUDIES))
    parser.add_argument("--options", default="", help="more options of `pausejax run`")
    asked = parser.parse_args()
    digests: dict[str, dict[str, str]] = {}
    with tempfile.TemporaryDirectory() as folder:
        for study in asked.study:
            for way in WAYS:
                result = play(Path(folder, study), study, way, asked.options.split())
                digests[f"{study} {way}"] = {
                    name: digest(result[name].values) for name in sorted(result.variables)
                }
                print(f"{study}, {way}: {len(digests[f'{study} {way}'])} variables", flush=True)
    asked.out.write_text(json.dumps(digests, indent=1))
    return report(json.loads(asked.against.read_text()), digests) if asked.against else 0


def play(folder: Path, study: str, way: str, options: list[str]):
    """Simulates a study in new processes, in one of `WAYS`, and returns its result."""
    folder.mkdir(exist_ok=True)
    (folder / "spec.toml").write_text(tomli_w.dumps(STUDIES[study]))
    sticky = Path(__file__).parents[1] / "examples" / "sticky.py"
    (folder / "sticky.py").write_bytes(sticky.read_bytes())
    write_pictures(folder / "pictures.npz")
    out = folder / way
    command = [sys.executable, "-m", "pausejax", "run", str(folder / "spec.toml"), "--out", str(out)]
    command += ["--quiet", "--no-report", *options]
    devices = 2 if study == "two_devices" else 1
    flags = f"{os.environ.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count={devices}"
    environment = {**os.environ, "XLA_FLAGS": flags.strip(), "JAX_PLATFORMS": "cpu"}
    if way == "killed":
        command += ["--checkpoint-every", "0", "--lanes", "2"]
        kill_after_checkpoint(command, out, environment)
    more = {"two_lanes": [["--lanes", "2"]], "two_shards": [["--shard", "1/2"], ["--shard", "2/2"]]}
    for options in more.get(way, [[]]):
        subprocess.run([*command, *options], env=environment, check=True)
    return pausejax.open(out).load()


def write_pictures(file: Path) -> None:
    """Writes a data set of 32 x 32 colour images. The class of an image is its brightest band of rows."""
    random = np.random.default_rng(0)
    labels = random.integers(0, 4, 240)
    pictures = random.integers(0, 128, (240, 32, 32, 3))
    for label, picture in zip(labels, pictures, strict=True):
        picture[8 * label : 8 * label + 8] += 100
    pictures = pictures.astype(np.uint8)
    np.savez(file, x_train=pictures[:200], y_train=labels[:200], x_test=pictures[200:], y_test=labels[200:])


def kill_after_checkpoint(command: list[str], out: Path, environment: dict[str, str]) -> None:
    """Starts a study and ends it with SIGKILL after its first checkpoint."""
    process = subprocess.Popen(command, env=environment)
    while process.poll() is None:
        if any((out / "checkpoints").glob("*/digest-*")) or any((out / "checkpoints").glob("*/state-*.npz")):
            process.send_signal(signal.SIGKILL)
        time.sleep(0.01)
    if process.wait() != -signal.SIGKILL:
        raise SystemExit(f"{out}: the study ended (exit code {process.returncode}) before it could be killed")


def digest(values: np.ndarray) -> str:
    """Computes the SHA-256 of an array's type, shape and bytes."""
    array = np.ascontiguousarray(values.astype(str) if values.dtype.kind in "OT" else values)
    return hashlib.sha256(f"{array.dtype.str} {array.shape};".encode() + array.tobytes()).hexdigest()


def report(before: dict[str, dict[str, str]], after: dict[str, dict[str, str]]) -> int:
    """Prints which variables differ, and returns the exit code: 1 if some do, else 0."""
    differing = 0
    for name, variables in after.items():
        old = before.get(name, {})
        changed = sorted(v for v in variables.keys() | old.keys() if variables.get(v) != old.get(v))
        differing += len(changed)
        if changed:
            print(f"{name}: {', '.join(changed)}")
    print(f"{differing} of {sum(map(len, after.values()))} variables differ")
    return 1 if differing else 0


if __name__ == "__main__":
    sys.exit(main())
