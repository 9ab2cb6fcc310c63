"""The kind of study "client selection": which clients take part in a round of federated learning."""

from collections.abc import Sequence
from typing import Any

import jax
import numpy as np

from pausejax import data, network, policies, privacy
from pausejax.clients.checks import check
from pausejax.clients.costs import cohort_shapes
from pausejax.clients.loop import advance, initial_params, start
from pausejax.clients.outputs import outputs
from pausejax.clients.parameters import LEARNING, PARAMETERS, STUDY, learns
from pausejax.clients.records import complete, evaluated_rounds
from pausejax.clients.simulation import ClientSimulation
from pausejax.data.host import DataCache
from pausejax.federated import aggregators, algorithms, models, optimizers, servers, tasks
from pausejax.federated.evaluation import client_metric
from pausejax.federated.kept import vectors_of_run
from pausejax.study.runs import Group
from pausejax.study.simulation import Layout
from pausejax.study.study import Kind, Study

PARTS = (data, network, policies, privacy, algorithms, aggregators, models, optimizers, servers, tasks)
"""Modules whose parts every study may use; importing a module registers its parts."""


def coordinates(
    mode: str, rounds: int, eval_every: int, arrays: dict[str, Any]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Returns the coordinates of rounds, clients and evaluations by name, and `arrays` unchanged."""
    found: dict[str, Any] = {
        "round": np.arange(1, rounds + 1, dtype=np.int32),
        "client": np.arange(arrays["counts"].shape[1], dtype=np.int32),
    }
    if learns(mode):
        found["eval_round"] = ("eval", evaluated_rounds(rounds, eval_every))
    return found, arrays


def simulation(
    study: Study,
    group: Group,
    cache: DataCache,
    devices: Sequence[jax.Device] | None = None,
    layout: Layout | None = None,
) -> ClientSimulation:
    """Builds the simulation of a group on some devices (the local ones if not given) in a layout."""
    return ClientSimulation(study, group, cache, devices, layout)


KIND = Kind(
    name="clients",
    modes=("training", "bandit"),
    study_keys=STUDY,
    parameters=PARAMETERS,
    for_policies=frozenset(),
    policy_category="policy",
    categories=(
        "latency",
        "availability",
        "ending",
        "dataset",
        "partition",
        "model",
        "task",
        "optimizer",
        "server_optimizer",
        "algorithm",
        "aggregator",
        "mechanism",
    ),
    ignored={"bandit": LEARNING},
    check=check,
    outputs=outputs,
    coordinates=coordinates,
    complete=complete,
    optional=frozenset(),
    simulation=simulation,
    jitted=(advance, start, cohort_shapes, initial_params, vectors_of_run, client_metric),
)
