"""Defines the clients of `flower.py`: one local epoch from the received weights, in a Ray worker."""

import functools
import os

import numpy as np
import torch
from flwr.app import ArrayRecord, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

torch.set_num_threads(1)
app = ClientApp()


def network():
    return torch.nn.Sequential(
        torch.nn.Linear(784, 32),
        torch.nn.ReLU(),
        torch.nn.Linear(32, 16),
        torch.nn.ReLU(),
        torch.nn.Linear(16, 10),
    )


@functools.cache
def work():
    loaded = np.load(os.environ["FLOWER_WORK"])
    return {name: torch.from_numpy(loaded[name]) for name in loaded.files}


@app.train()
def train(message, context):
    data, model = work(), network()
    model.load_state_dict(message.content["arrays"].to_torch_state_dict())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    owned = torch.nonzero(data["owner"] == context.node_config["partition-id"]).flatten()
    for batch in owned[torch.randperm(len(owned))].split(20):
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(data["x"][batch]), data["y"][batch]).backward()
        optimizer.step()
    counted = MetricRecord({"num-examples": len(owned)})
    return Message(
        RecordDict({"arrays": ArrayRecord(model.state_dict()), "metrics": counted}), reply_to=message
    )
