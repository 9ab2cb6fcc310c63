"""The kind "ensembles on a feedback graph": which models of a pool a round sends."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from pausejax.data.host import Sources
from pausejax.ensemble.experts import EXPERT_NAMES, NUM_EXPERTS
from pausejax.ensemble.parameters import FOR_POLICIES, PARAMETERS, STUDY
from pausejax.ensemble.play import play, start
from pausejax.ensemble.simulation import EnsembleSimulation
from pausejax.ensemble.variables import COORDINATES, METRICS, VARIABLES
from pausejax.study.checks import values_of
from pausejax.study.study import Group, Kind, Plan, Study
from pausejax.study.trials import Layout
from pausejax.study.vocabulary import Say

if TYPE_CHECKING:
    import xarray as xr

# Measured on two CPU cores with 22 models; EFL-FG, the slowest policy.
_SECONDS_PER_ROUND = 1e-5


def check(say: Say, study: Study) -> None:
    """Says what does not fit together."""
    for key in ("selection_gap", "expected_regret", "stop_at_latency"):
        if value := getattr(study, key):
            say(key, value, 'goes with client selection, not with mode = "ensemble"')
    if study.rounds % study.eval_every:
        say("eval_every", study.eval_every, f"must divide rounds = {study.rounds}")
    budget, uplink = (min(values_of(study, name)) for name in ("budget", "uplink"))
    if budget < 1:
        say("network.budget", budget, "must be >= 1, the dearest model's cost: condition (a3)")
    if uplink <= NUM_EXPERTS:
        say("network.uplink", uplink, f"must be >= {NUM_EXPERTS + 1}, a report on every model")
    for section, name in (("weights", "exploration_rate"), ("pool", "fit_fraction")):
        for value in values_of(study, name):
            if value == 1 or (value == 0 and name == "fit_fraction"):
                say(f"{section}.{name}", value, "must be between 0 and 1")


def labels(study: Study, arrays: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """The coordinates among what runs left, with those of rounds and models, and the variables."""
    coordinates: dict[str, Any] = {name: ("run", arrays[name]) for name in COORDINATES}
    count = arrays["mse"].shape[1]
    coordinates["round"] = np.arange(1, count + 1, dtype=np.int32) * study.eval_every
    coordinates["model"] = np.array(EXPERT_NAMES)
    return coordinates, {name: array for name, array in arrays.items() if name not in COORDINATES}


def seconds(plan: Plan, group: Group, simulation: EnsembleSimulation, peak: float) -> float:
    """A rough time."""
    return len(group.members) * simulation.rounds * _SECONDS_PER_ROUND


def draw(result: "xr.Dataset", grid: Any, *, smoothing: int = 1) -> dict[str, Any]:
    """The kind's own pictures, by file name, in the panels of a `report.grid.Grid`."""
    from pausejax.ensemble import pictures  # matplotlib is loaded for whoever draws

    return pictures.draw(result, grid, smoothing=smoothing)


def unshown(result: "xr.Dataset") -> list[str]:
    """Who is not in some of these pictures, and why."""
    from pausejax.ensemble import pictures

    return pictures.unshown(result)


def simulation(
    plan: Plan,
    group: Group,
    sources: Sources,
    devices: Sequence[jax.Device] | None = None,
    layout: Layout | None = None,
) -> EnsembleSimulation:
    """A group as the engine plays it on some devices, the local ones if not given, in its only layout."""
    return EnsembleSimulation(plan, group, sources, devices)


KIND = Kind(
    name="ensemble",
    modes=("ensemble",),
    study=STUDY,
    parameters=PARAMETERS,
    for_policies=FOR_POLICIES,
    policies="ensemble_policy",
    categories=("regression_dataset",),
    unread={},
    shape=lambda values: (),
    check=check,
    variables=lambda study: VARIABLES,
    unrecorded=lambda study: frozenset(),
    metrics=lambda study: METRICS,
    objectives=lambda study: ("mse", "cost", "violations"),
    ranking=lambda study: "mse",
    apart=("dataset",),
    labels=labels,
    simulation=simulation,
    programs=(play, start),
    variants=lambda plan, group, sources: None,
    seconds=seconds,
    draw=draw,
    unshown=unshown,
)
