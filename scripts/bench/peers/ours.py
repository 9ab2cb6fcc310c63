"""Runs FedAvg in pausejax: `ours.py DATA.npz ROUNDS RUNS`. A round of RUNS seeds side by side counts RUNS
times."""

import json
import sys
import time

import numpy as np

import pausejax
from pausejax.data import Dataset

path, rounds, runs = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
work = np.load(path)
shape = tuple(work["shape"].tolist())
convolutional = shape[-1] > 1
network = {"model": "cnn_cifar", "norm": "group"} if convolutional else {"model": "mlp"}
# Both numbers fill a call of the program. A round of the MLP is too short for 200 rounds to be timed.
few, stretch = (25, 1) if convolutional else (100, 10)


@pausejax.dataset
def peers_images():
    """Returns the images of the peers' work as bytes, with the same owners."""
    train, test = (np.rint((work[name] + 1) * 127.5).astype(np.uint8) for name in ("x", "test_x"))
    return Dataset(
        train.reshape(-1, *shape),
        work["y"],
        test.reshape(-1, *shape),
        work["test_y"],
        owner=work["owner"],
    )


def play(rounds):
    begun = time.process_time()
    result = pausejax.simulate(
        "random",
        dataset="peers_images",
        partition="natural",
        **network,
        optimizer="sgd",
        momentum=0.0,
        learning_rate=0.1,
        batch_size=int(work["batch"]),
        persist_optimizer=False,
        private=False,
        num_clients=int(work["clients"]),
        clients_per_round=int(work["cohort"]),
        rounds=rounds,
        eval_every=10,
        seeds=runs,
    )
    return time.process_time() - begun, result


# Imports, tracing and compilation cost the same for few and many rounds, if both numbers fill a call.
play(few)
short, _ = play(few)
long, result = play(few + stretch * rounds)
accuracy = result["test_accuracy"].values.mean(axis=0)[: rounds // 10]
print(
    json.dumps(
        {
            "rounds": stretch * rounds * runs,
            "cpu_seconds": long - short,
            "accuracy": accuracy.astype(float).tolist(),
        }
    )
)
