"""Defines the cases: studies, numbers of runs side by side, and noise with the shapes of the data sets."""

from typing import Any, NamedTuple

import numpy as np

import pausejax
from pausejax.data import Dataset


class Case(NamedTuple):
    """Study that is compiled for a GPU."""

    document: dict[str, Any]
    runs: tuple[int, ...]
    """Numbers of runs side by side."""
    goal: dict[int, float] = {}  # noqa: RUF012, never written to
    """Rounds × runs per second that one H100 should reach, by the number of runs."""


ROUNDS = 100


def _images(shape: tuple[int, ...], train: int) -> Dataset:
    rng, test = np.random.default_rng(0), 10_000
    images = [rng.integers(0, 256, (count, *shape), np.uint8) for count in (train, test)]
    labels = [(np.arange(count) % 10).astype(np.int32) for count in (train, test)]
    return Dataset(images[0], labels[0], images[1], labels[1], num_classes=10)


@pausejax.dataset
def like_mnist() -> Dataset:
    """Returns noise with the shapes of MNIST."""
    return _images((28, 28, 1), 60_000)


@pausejax.dataset
def like_cifar10() -> Dataset:
    """Returns noise with the shapes of CIFAR-10."""
    return _images((32, 32, 3), 50_000)


def _network(clients: int, selected: int) -> dict[str, int]:
    return {"num_clients": clients, "clients_per_round": selected}


SIZES = {30: 5, 300: 15, 3000: 150}
"""Clients per round, m, by number of clients, K."""
POLICIES = (
    *("pause", "sa_pause", "vanilla_sa", "random", "fastest", "fedavg", "fedcs", "cs_ucb"),
    *("bandit_generalization", "clustered_size", "value_per_second"),
)
"""Policies that select without training. `LEARNING_POLICIES` need training."""
LEARNING_POLICIES = ("oort", "power_of_choice", "clustered_similarity")
_GOALS = {("pause", 30): {4096: 20e6}, ("pause", 300): {4096: 5e6}, ("sa_pause", 30): {4096: 1e6}}


def _bandit(policy: str, clients: int) -> Case:
    entry = {"name": policy} | ({"annealing_steps": 200} if policy in ("sa_pause", "vanilla_sa") else {})
    document = {"mode": "bandit", "network": _network(clients, SIZES[clients]), "policy": [entry]}
    widths = {30: (256, 4096), 300: (256, 4096), 3000: (64,)}[clients]
    return Case(
        document, widths if policy in ("pause", "sa_pause") else widths[:1], _GOALS.get((policy, clients), {})
    )


def _learning(dataset: str, model: str, samples: int, runs: tuple[int, ...], **more: Any) -> Case:
    goal = more.pop("goal", {})
    document = {
        "network": _network(30, 5),
        "data": {"dataset": dataset, "train_samples": samples},
        "training": {"model": model, "persist_optimizer": True},
        "policy": [{"name": more.pop("policy", "pause")}],
        **more,
    }
    return Case(document, runs, goal)


def _ensemble(policy: str) -> Case:
    return Case({"mode": "ensemble", "policy": [{"name": policy}]}, (128,))


CASES: dict[str, Case] = {
    **{f"{policy}-{clients}": _bandit(policy, clients) for clients in SIZES for policy in POLICIES},
    "mlp": _learning("like_mnist", "mlp", 2000, (1, 8, 128, 1024), goal={8: 20e3, 128: 80e3}),
    "mlp-every-round": _learning("like_mnist", "mlp", 2000, (8,), eval_every=1),
    "mlp-60000": _learning("like_mnist", "mlp", 0, (8,)),
    "cnn_mnist": _learning("like_mnist", "cnn_mnist", 2000, (1, 8, 64)),
    "cnn_cifar": _learning("like_cifar10", "cnn_cifar", 0, (1, 8, 64), goal={8: 150}),
    "cnn_cifar-every-round": _learning("like_cifar10", "cnn_cifar", 0, (8,), eval_every=1),
    **{
        f"mlp-{policy}": _learning("like_mnist", "mlp", 2000, (8,), policy=policy)
        for policy in LEARNING_POLICIES
    },
    "efl_fg": _ensemble("efl_fg"),
    "fedboost": _ensemble("fedboost"),
}


def document(case: Case, runs: int, changes: dict[str, Any]) -> dict[str, Any]:
    """Returns the spec of a case with some changes, which are values by dotted key."""
    rounds = {} if case.document.get("mode") == "ensemble" else {"rounds": ROUNDS, "eval_every": 10}
    made = {"seeds": runs, **rounds, **case.document}
    for path, value in changes.items():
        *heads, last = path.split(".")
        at = made
        for head in heads:
            at[head] = dict(at.get(head, {}))
            at = at[head]
        at[last] = value
    return made
