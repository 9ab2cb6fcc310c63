"""FedAvg by pausejax, `ours.py DATA.npz ROUNDS RUNS`: a round of RUNS seeds at once counts RUNS times."""

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
# Both are a call's worth at least. A round of the MLP is too short to be timed two hundred times.
few, stretch = (25, 1) if convolutional else (100, 10)


@pausejax.dataset
def peers_images():
    """The peers' images as bytes, dealt to the same clients."""
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


# Imports, tracing and compilation are the same for few rounds and for many, once both have a call's worth.
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
