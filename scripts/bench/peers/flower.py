"""Runs FedAvg in Flower's simulation, on a new Ray with one core: `flower.py DATA.npz ROUNDS`."""

import json
import os
import sys

os.environ |= {
    "FLOWER_WORK": sys.argv[1],
    "FLWR_TELEMETRY_ENABLED": "0",
    "RAY_USAGE_STATS_ENABLED": "0",
    # Ray waits this long for its processes, because the machine may be busy.
    "RAY_raylet_start_wait_time_s": "600",
    "RAY_worker_register_timeout_seconds": "600",
    "RAY_agent_register_timeout_ms": "600000",
}

import psutil
import torch
from flower_client import app, network, work
from flwr.app import ArrayRecord, MetricRecord
from flwr.serverapp import ServerApp
from flwr.serverapp.strategy import FedAvg
from flwr.simulation import run_simulation

rounds, model, server = int(sys.argv[2]), network(), ServerApp()
accuracy, spent = [], {}


def cpu_seconds():
    """Returns the CPU seconds of this process, of Ray, and of Ray's workers."""
    whole = psutil.Process()
    return sum(sum(p.cpu_times()[:2]) for p in (whole, *whole.children(recursive=True)))


def evaluate(turn, arrays):
    if turn in (20, rounds):
        spent[turn] = cpu_seconds()
    if turn % 10 or not turn:
        return None
    model.load_state_dict(arrays.to_torch_state_dict())
    with torch.no_grad():
        right = model(work()["test_x"]).argmax(1) == work()["test_y"]
    accuracy.append(right.float().mean().item())
    return MetricRecord({"accuracy": accuracy[-1]})


@server.main()
def main(grid, context):
    torch.manual_seed(0)
    strategy = FedAvg(fraction_train=5 / 30, fraction_evaluate=0.0, min_train_nodes=5, min_available_nodes=30)
    strategy.start(
        grid=grid,
        initial_arrays=ArrayRecord(network().state_dict()),
        num_rounds=rounds,
        evaluate_fn=evaluate,
    )


run_simulation(
    server,
    app,
    num_supernodes=30,
    backend_config={
        "init_args": {"num_cpus": 1, "include_dashboard": False, "object_store_memory": 10**8},
        "client_resources": {"num_cpus": 1.0, "num_gpus": 0.0},
    },
)
print(json.dumps({"rounds": rounds - 20, "cpu_seconds": spent[rounds] - spent[20], "accuracy": accuracy}))
