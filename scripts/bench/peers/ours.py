"""FedAvg by pausejax, `ours.py DATA.npz ROUNDS RUNS`: a round of RUNS seeds at once counts RUNS times."""

import json
import sys
import time

import numpy as np

import pausejax
from pausejax.data import Dataset

path, rounds, runs = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])


@pausejax.dataset
def peers_mnist():
    """The peers' images as bytes, dealt to the same clients."""
    work = np.load(path)
    train, test = (np.rint((work[name] + 1) * 127.5).astype(np.uint8) for name in ("x", "test_x"))
    return Dataset(
        train.reshape(-1, 28, 28, 1),
        work["y"],
        test.reshape(-1, 28, 28, 1),
        work["test_y"],
        owner=work["owner"],
    )


def play(rounds):
    begun = time.process_time()
    result = pausejax.simulate(
        "random",
        dataset="peers_mnist",
        partition="natural",
        model="mlp",
        optimizer="sgd",
        momentum=0.0,
        learning_rate=0.1,
        batch_size=20,
        persist_optimizer=False,
        private=False,
        num_clients=30,
        clients_per_round=5,
        rounds=rounds,
        eval_every=10,
        seeds=runs,
    )
    return time.process_time() - begun, result


# Imports, tracing and compilation are the same for few rounds and for many, once both have a call's worth.
play(100)
short, _ = play(100)
long, result = play(100 + 10 * rounds)
accuracy = result["test_accuracy"].values.mean(axis=0)[: rounds // 10]
print(
    json.dumps(
        {
            "rounds": 10 * rounds * runs,
            "cpu_seconds": long - short,
            "accuracy": accuracy.astype(float).tolist(),
        }
    )
)
