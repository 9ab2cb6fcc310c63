"""Runs the same FedAvg in several simulators, each in its own environment, and prints rounds per CPU second.

python scripts/bench/peers/run.py [--work mnist|cifar10] [--only NAME ...] [--rounds 200] [--repeats 2]
    [--data-dir FOLDER] [--record FILE]

README.md in this folder describes the work and the versions.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import venv
from pathlib import Path
from typing import NamedTuple

import numpy as np

HERE = Path(__file__).resolve().parent
CACHE = HERE.parents[2] / ".cache" / "peers"


class Work(NamedTuple):
    samples: int
    clients: int
    cohort: int
    batch: int


WORKS = {"mnist": Work(2000, 30, 5, 20), "cifar10": Work(50_000, 1000, 50, 10)}


class Peer(NamedTuple):
    script: str
    requirements: tuple[str, ...]
    arguments: tuple[str, ...] = ()
    works: tuple[str, ...] = ("mnist",)


_TORCH = ("torch==2.13.0", "numpy>=2")
PEERS = {
    "torch": Peer("plain_torch.py", _TORCH),
    "flower": Peer("flower.py", (*_TORCH, "flwr[simulation]==1.41.0", "psutil==7.0.0")),
    "pfl": Peer("pfl_research.py", ("pfl==0.6.0", "torch==2.13.0"), (), tuple(WORKS)),
    "fedjax": Peer(
        "fedjax_mnist.py",
        (
            "fedjax==0.0.17",
            "jax==0.4.30",
            "jaxlib==0.4.30",
            "dm-haiku==0.0.12",
            "numpy<2",
            "optax==0.2.3",
            "chex==0.1.86",
            "flax==0.8.5",
        ),
    ),
    "ours_1": Peer("ours.py", (), ("1",), tuple(WORKS)),
    "ours_8": Peer("ours.py", (), ("8",)),
}


def data(name: str, folder: str | None) -> Path:
    """Writes the work as a file for every peer, and returns its path.

    The file has pixels in [-1, 1], labels, and the owner of each image.
    """
    work, path = WORKS[name], CACHE / f"{name}.npz"
    if not path.exists():
        from pausejax import data as sources

        found = sources.load(name, folder)
        CACHE.mkdir(parents=True, exist_ok=True)
        np.savez(
            path,
            x=_pixels(found.train_inputs[: work.samples]),
            y=found.train_targets[: work.samples].astype(np.int64),
            test_x=_pixels(found.test_inputs),
            test_y=found.test_targets.astype(np.int64),
            owner=np.random.default_rng(0).permutation(np.arange(work.samples) % work.clients),
            shape=found.train_inputs.shape[1:],
            **work._asdict(),
        )
    return path


def _pixels(images: np.ndarray) -> np.ndarray:
    return ((images.reshape(len(images), -1) / 255 - 0.5) / 0.5).astype(np.float32)


def interpreter(name: str, peer: Peer) -> str:
    """Returns the path of a Python with the libraries of a peer, which are installed if needed."""
    if not peer.requirements:
        return sys.executable
    folder = CACHE / name
    python, ready = folder / "bin" / "python", folder / "ready"
    if not ready.exists() or ready.read_text() != "\n".join(peer.requirements):
        print(f"installing {name}", file=sys.stderr, flush=True)
        venv.create(folder, with_pip=True, clear=True)
        subprocess.run([python, "-m", "pip", "install", "-q", *peer.requirements], check=True)
        ready.write_text("\n".join(peer.requirements))
    return str(python)


def play(name: str, peer: Peer, work: Path, rounds: int) -> dict[str, object]:
    """Runs a peer once, and returns its rounds, CPU seconds and accuracies."""
    one = {f"{library}_NUM_THREADS": "1" for library in ("OMP", "MKL", "OPENBLAS")}
    xla = "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"
    found = subprocess.run(
        [interpreter(name, peer), HERE / peer.script, work, str(rounds), *peer.arguments],
        env={**os.environ, **one, "XLA_FLAGS": xla, "JAX_PLATFORMS": "cpu", "PYTHONPATH": str(HERE)}
        | ({"PYTHONPATH": str(HERE.parents[2])} if not peer.requirements else {}),
        stdout=subprocess.PIPE,
        text=True,
    )
    if found.returncode:
        raise SystemExit(f"{name}: its process failed with exit code {found.returncode}")
    return {"peer": name, **json.loads(found.stdout.strip().splitlines()[-1])}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--work", choices=WORKS, default="mnist")
    parser.add_argument("--only", nargs="+", choices=PEERS, default=[], metavar="NAME")
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--repeats", type=int, default=2, help="runs of each peer, which alternate")
    parser.add_argument("--data-dir", metavar="FOLDER", help="folder of prepared TFDS data sets")
    parser.add_argument("--record", type=Path, metavar="FILE", help="append each run as a line of JSON")
    options = parser.parse_args()
    able = [name for name, peer in PEERS.items() if options.work in peer.works]
    if strange := [name for name in options.only if name not in able]:
        parser.error(
            f"--only {' '.join(strange)}: with --work {options.work}, must be among {', '.join(able)}"
        )
    names, work = options.only or able, data(options.work, options.data_dir)
    speeds: dict[str, list[float]] = {name: [] for name in names}
    accuracy: dict[str, float] = {}
    for name in names:
        interpreter(name, PEERS[name])
    for _ in range(options.repeats):
        for name in names:
            line = play(name, PEERS[name], work, options.rounds)
            if options.record:
                with options.record.open("a") as file:
                    file.write(json.dumps(line) + "\n")
            speeds[name].append(line["rounds"] / line["cpu_seconds"])
            accuracy[name] = line["accuracy"][-1]
            print(f"{name}: {speeds[name][-1]:.1f} rounds per CPU second", file=sys.stderr, flush=True)
    print("| peer | rounds per CPU second | least and most | test accuracy at the end |")
    print("| --- | --- | --- | --- |")
    for name, found in speeds.items():
        low, middle, high = min(found), statistics.median(found), max(found)
        print(f"| {name} | {middle:.3g} | {low:.3g} to {high:.3g} | {accuracy[name]:.3f} |")


if __name__ == "__main__":
    main()
