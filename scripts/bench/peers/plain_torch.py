"""Runs FedAvg in a plain PyTorch loop: `plain_torch.py DATA.npz ROUNDS`."""

import json
import sys
import time

import numpy as np
import torch

torch.set_num_threads(1)
work, rounds = np.load(sys.argv[1]), int(sys.argv[2])
x, y, test_x, test_y = (torch.from_numpy(work[name]) for name in ("x", "y", "test_x", "test_y"))
owned = [torch.from_numpy(np.flatnonzero(work["owner"] == client)) for client in range(30)]
loss_of = torch.nn.functional.cross_entropy


def network():
    return torch.nn.Sequential(
        torch.nn.Linear(784, 32),
        torch.nn.ReLU(),
        torch.nn.Linear(32, 16),
        torch.nn.ReLU(),
        torch.nn.Linear(16, 10),
    )


torch.manual_seed(0)
draw = np.random.default_rng(0)
shared, local = network(), network()
accuracy, begun = [], 0.0
for turn in range(1, rounds + 1):
    total = [torch.zeros_like(values) for values in shared.parameters()]
    samples = 0
    for client in draw.choice(30, 5, replace=False):
        local.load_state_dict(shared.state_dict())
        optimizer = torch.optim.SGD(local.parameters(), lr=0.1)
        rows = owned[client][torch.randperm(len(owned[client]))]
        for batch in rows.split(20):
            optimizer.zero_grad()
            loss_of(local(x[batch]), y[batch]).backward()
            optimizer.step()
        samples += len(rows)
        for sums, values in zip(total, local.parameters(), strict=True):
            sums.add_(values.detach(), alpha=len(rows))
    with torch.no_grad():
        for values, sums in zip(shared.parameters(), total, strict=True):
            values.copy_(sums / samples)
        if turn % 10 == 0:
            accuracy.append((shared(test_x).argmax(1) == test_y).float().mean().item())
    if turn == 20:
        begun = time.process_time()
print(json.dumps({"rounds": rounds - 20, "cpu_seconds": time.process_time() - begun, "accuracy": accuracy}))
