"""The kind "client selection": who takes part in a round of federated learning."""

import functools
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from pausejax import data, network, policies
from pausejax.clients.checks import check
from pausejax.clients.parameters import LEARNING, PARAMETERS, STUDY, learns
from pausejax.clients.records import evaluated_rounds
from pausejax.clients.simulation import ClientSimulation
from pausejax.clients.variables import metrics, objectives, ranking, unrecorded, variables
from pausejax.data.host import Sources
from pausejax.federated import models, optimizers, servers, tasks
from pausejax.federated.batches import num_steps, prepare
from pausejax.federated.modules import Model
from pausejax.study.study import Group, Kind, Plan, Study

if TYPE_CHECKING:
    import xarray as xr

PARTS = (data, network, policies, models, optimizers, servers, tasks)
"""Whose parts every study may use; importing them registers these."""

# Measured on two CPU cores with small networks: the share of the matrix-product peak that local training
# reaches, seconds of everything else per round and run, and seconds per step of annealing.
_EFFICIENCY = 0.2
_ROUND_SECONDS = {"training": 1e-4, "bandit": 1e-5}
_ANNEALING_SECONDS = 5e-7


def labels(study: Study, arrays: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """The coordinates of rounds, clients and evaluations, and the variables as they are."""
    found: dict[str, Any] = {
        "round": np.arange(1, study.rounds + 1, dtype=np.int32),
        "client": np.arange(arrays["counts"].shape[1], dtype=np.int32),
    }
    if learns(study.mode):
        found["eval_round"] = ("eval", evaluated_rounds(study.rounds, study.eval_every))
    return found, arrays


def seconds(plan: Plan, group: Group, simulation: ClientSimulation, peak: float) -> float:
    """A rough time: local training and evaluation at a share of the peak, and all else by the round."""
    work = plan.study.rounds * len(group.members)
    annealing = _ANNEALING_SECONDS * group.static.get("annealing_steps", 0)
    spent = work * (_ROUND_SECONDS[plan.study.mode] + annealing)
    return spent + work * _flops_per_round(simulation) / (_EFFICIENCY * peak)


def _flops_per_round(simulation: ClientSimulation) -> float:
    """Local training (three forward passes' worth a sample and step) and evaluation of one run."""
    program, world = simulation.program, simulation.world
    learning = program.learning
    if learning is None or world.test is None or world.data is None:
        return 0.0
    steps = float(np.mean(num_steps(learning.training, world.data.size)))
    test = world.test
    sample = jax.ShapeDtypeStruct((1, test.inputs.shape[-1]), test.inputs.dtype)
    inputs = jax.eval_shape(functools.partial(prepare, learning), sample, test.mean, test.std)
    per_sample = _flops_of(learning.model, inputs.shape, inputs.dtype) or 2 * learning.num_parameters
    trained = simulation.slots() * steps * learning.training.batch_size * 3 * per_sample
    return trained + test.exists.size * per_sample / program.eval_every


@functools.cache
def _flops_of(model: Model, shape: tuple[int, ...], dtype: Any) -> float:
    """Of a forward pass, as XLA counts them; 0 where it does not."""
    weights = jax.eval_shape(model.init, jax.random.key(0))
    forward = jax.jit(model.apply).lower(*weights, jax.ShapeDtypeStruct(shape, dtype))
    return float((forward.cost_analysis() or {}).get("flops", 0.0))


def draw(result: "xr.Dataset", grid: Any, *, smoothing: int = 1) -> dict[str, Any]:
    """The kind's own pictures, by file name, in the panels of a `report.grid.Grid`."""
    from pausejax.clients import pictures  # matplotlib is loaded for whoever draws

    return pictures.draw(result, grid, smoothing=smoothing)


def unshown(result: "xr.Dataset") -> list[str]:
    """Who is not in some of these pictures, and why."""
    from pausejax.clients import pictures

    return pictures.unshown(result)


def simulation(
    plan: Plan, group: Group, sources: Sources, devices: Sequence[jax.Device] | None = None
) -> ClientSimulation:
    """A group as the engine plays it on some devices, the local ones if not given."""
    return ClientSimulation(plan, group, sources, devices)


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
    seconds=seconds,
    draw=draw,
    unshown=unshown,
)
