"""Runs FedAvg in pfl-research: `pfl_research.py DATA.npz ROUNDS`."""

import contextlib
import json
import sys
import time

import numpy as np
import torch
from pfl.aggregate.simulate import SimulatedBackend
from pfl.algorithm.base import NNAlgorithmParams
from pfl.algorithm.federated_averaging import FederatedAveraging
from pfl.callback.base import TrainingProcessCallback
from pfl.callback.central_evaluation import CentralEvaluationCallback
from pfl.data.dataset import Dataset
from pfl.data.federated_dataset import FederatedDataset
from pfl.data.sampling import get_user_sampler
from pfl.hyperparam.base import NNEvalHyperParams, NNTrainHyperParams
from pfl.metrics import Metrics, Weighted
from pfl.model.pytorch import PyTorchModel

torch.set_num_threads(1)
torch.manual_seed(0)
np.random.seed(0)  # noqa: NPY002 (the sampler of pfl-research uses this generator)
work, rounds = np.load(sys.argv[1]), int(sys.argv[2])
x, y, test_x, test_y = (torch.from_numpy(work[name]) for name in ("x", "y", "test_x", "test_y"))
loss_of = torch.nn.functional.cross_entropy
clients, cohort, batch = (int(work[name]) for name in ("clients", "cohort", "batch"))
height, width, channels = work["shape"].tolist()
convolutional = channels > 1
if convolutional:
    x, test_x = (
        given.view(-1, height, width, channels).permute(0, 3, 1, 2).contiguous() for given in (x, test_x)
    )


def convolution(taken, given):
    return (
        torch.nn.Conv2d(taken, given, 3),
        torch.nn.ReLU(),
        torch.nn.MaxPool2d(2),
        torch.nn.GroupNorm(4, given),
    )


def dense(taken, given):
    return torch.nn.Linear(taken, given), torch.nn.ReLU(), torch.nn.GroupNorm(1, given)


def mlp():
    return (
        torch.nn.Linear(784, 32),
        torch.nn.ReLU(),
        torch.nn.Linear(32, 16),
        torch.nn.ReLU(),
        torch.nn.Linear(16, 10),
    )


def cnn():
    return (
        *convolution(3, 32),
        *convolution(32, 64),
        *convolution(64, 128),
        torch.nn.Flatten(),
        *dense(512, 128),
        *dense(128, 64),
        *dense(64, 32),
        torch.nn.Linear(32, 10),
    )


class Network(torch.nn.Sequential):
    def __init__(self):
        super().__init__(*(cnn() if convolutional else mlp()))

    def loss(self, inputs, targets, eval=False):
        self.train()
        return loss_of(self(inputs), targets)

    @torch.no_grad()
    def metrics(self, inputs, targets, eval=False):
        self.eval()
        right = (self(inputs).argmax(1) == targets).sum().item()
        return {"accuracy": Weighted(right, len(targets))}


def client_data(client):
    owned = torch.from_numpy(np.flatnonzero(work["owner"] == client))
    rows = owned[torch.randperm(len(owned))]
    return Dataset([x[rows], y[rows]], user_id=str(client))


marks, accuracy = [], []


class Clock(TrainingProcessCallback):
    def after_central_iteration(self, aggregate_metrics, model, *, central_iteration):
        marks.append(time.process_time())
        return False, Metrics()


class Evaluation(CentralEvaluationCallback):
    def after_central_iteration(self, aggregate_metrics, model, *, central_iteration):
        stop, metrics = super().after_central_iteration(
            aggregate_metrics, model, central_iteration=central_iteration
        )
        found = metrics.to_simple_dict()
        accuracy.extend(float(value) for name, value in found.items() if "accuracy" in name)
        return stop, metrics


network = Network()
everybody = FederatedDataset(client_data, get_user_sampler("random", list(range(clients))))
with contextlib.redirect_stdout(sys.stderr):
    FederatedAveraging().run(
        NNAlgorithmParams(
            central_num_iterations=rounds,
            evaluation_frequency=10**9,
            train_cohort_size=cohort,
            val_cohort_size=0,
        ),
        SimulatedBackend(everybody, everybody),
        PyTorchModel(network, torch.optim.SGD, torch.optim.SGD(network.parameters(), lr=1.0)),
        NNTrainHyperParams(local_num_epochs=1, local_learning_rate=0.1, local_batch_size=batch),
        NNEvalHyperParams(local_batch_size=1000),
        [
            Evaluation(
                Dataset([test_x, test_y]),
                NNEvalHyperParams(local_batch_size=1000 if convolutional else 10_000),
                frequency=10,
            ),
            Clock(),
        ],
        send_metrics_to_platform=False,
    )
first = max(rounds // 10, 1)
spent = marks[-1] - marks[first - 1]
print(json.dumps({"rounds": rounds - first, "cpu_seconds": spent, "accuracy": accuracy}))
