"""The kind "client selection": who takes part in a round of federated learning."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from pausejax import data, network, policies
from pausejax.clients.checks import check
from pausejax.clients.costs import seconds
from pausejax.clients.parameters import LEARNING, PARAMETERS, STUDY, learns
from pausejax.clients.play import initial_params, play, start
from pausejax.clients.records import evaluated_rounds
from pausejax.clients.simulation import ClientSimulation
from pausejax.clients.tuning import variants
from pausejax.clients.variables import metrics, objectives, ranking, unrecorded, variables
from pausejax.data.host import Sources
from pausejax.federated import models, optimizers, servers, tasks
from pausejax.study.study import Group, Kind, Plan, Study
from pausejax.study.trials import Layout

if TYPE_CHECKING:
    import xarray as xr

PARTS = (data, network, policies, models, optimizers, servers, tasks)
"""Whose parts every study may use; importing them registers these."""


def labels(study: Study, arrays: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """The coordinates of rounds, clients and evaluations, and the variables as they are."""
    found: dict[str, Any] = {
        "round": np.arange(1, study.rounds + 1, dtype=np.int32),
        "client": np.arange(arrays["counts"].shape[1], dtype=np.int32),
    }
    if learns(study.mode):
        found["eval_round"] = ("eval", evaluated_rounds(study.rounds, study.eval_every))
    return found, arrays


def draw(result: "xr.Dataset", grid: Any, *, smoothing: int) -> dict[str, Any]:
    """The kind's own pictures, by file name, in the panels of a `report.grid.Grid`."""
    from pausejax.clients import pictures  # matplotlib is loaded for whoever draws

    return pictures.draw(result, grid, smoothing=smoothing)


def unshown(result: "xr.Dataset") -> list[str]:
    """Who is not in some of these pictures, and why."""
    from pausejax.clients import pictures

    return pictures.unshown(result)


def simulation(
    plan: Plan,
    group: Group,
    sources: Sources,
    devices: Sequence[jax.Device] | None = None,
    layout: Layout | None = None,
) -> ClientSimulation:
    """A group as the engine plays it on some devices, the local ones if not given, in a layout."""
    return ClientSimulation(plan, group, sources, devices, layout)


KIND = Kind(
    name="clients",
    modes=("training", "bandit"),
    study=STUDY,
    parameters=PARAMETERS,
    for_policies=frozenset(),
    policies="policy",
    categories=(
        "latency",
        "availability",
        "dataset",
        "partition",
        "model",
        "task",
        "optimizer",
        "server_optimizer",
    ),
    unread={"bandit": LEARNING},
    shape=lambda values: values.get("proximal_weight", 0.0) > 0,
    check=check,
    variables=variables,
    unrecorded=unrecorded,
    metrics=metrics,
    objectives=objectives,
    ranking=ranking,
    apart=("dataset", "task"),
    labels=labels,
    simulation=simulation,
    programs=(play, start, initial_params),
    variants=variants,
    seconds=seconds,
    draw=draw,
    unshown=unshown,
)
