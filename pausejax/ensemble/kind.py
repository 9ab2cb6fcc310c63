"""Defines the kind of study "ensemble", in which a policy selects the models of a pool to send per round."""

from collections.abc import Mapping, Sequence
from typing import Any

import jax
import numpy as np

from pausejax.analysis.quantities import Variable
from pausejax.data.host import DataCache
from pausejax.ensemble.experts import EXPERT_NAMES, NUM_EXPERTS
from pausejax.ensemble.loop import advance, start
from pausejax.ensemble.parameters import FOR_POLICIES, PARAMETERS, STUDY
from pausejax.ensemble.simulate import reads_too_many_rows
from pausejax.ensemble.simulation import EnsembleSimulation
from pausejax.ensemble.variables import COORDINATES, METRICS, VARIABLES
from pausejax.study.checks import refuse_names, values_of
from pausejax.study.runs import Group
from pausejax.study.simulation import Arrays, Layout
from pausejax.study.study import Kind, Outputs, Study
from pausejax.study.vocabulary import Say


def check(say: Say, study: Study) -> None:
    """Reports values of a study that contradict each other."""
    for key in ("selection_gap", "expected_regret", "client_metrics", "keep_models", "stop_at_latency"):
        if value := getattr(study, key):
            say(key, value, 'not allowed with mode = "ensemble". Only studies of client selection read it')
    if study.rounds % study.eval_every:
        say("eval_every", study.eval_every, f"must divide rounds = {study.rounds}")
    refuse_names(study, VARIABLES.keys() | METRICS.keys() | {"model", "rounds_played"})
    num_clients = max(values_of(study, "num_clients"))
    if reads_too_many_rows(study.rounds, num_clients):
        say("rounds", study.rounds, f"times {num_clients} clients must be < 2^31")
    budget, uplink = (min(values_of(study, name)) for name in ("budget", "uplink"))
    if budget < 1:
        say(
            "network.budget",
            budget,
            "must be >= 1, the cost of the most expensive model, by condition (a3) of EFL-FG",
        )
    if uplink <= NUM_EXPERTS:
        say(
            "network.uplink",
            uplink,
            f"must be >= {NUM_EXPERTS + 1}, the largest number of losses that one client reports",
        )
    for section, name in (("weights", "exploration_rate"), ("pool", "fit_fraction")):
        for value in values_of(study, name):
            if value == 1 or (value == 0 and name == "fit_fraction"):
                allowed = "must be > 0 and < 1" if name == "fit_fraction" else "must be >= 0 and < 1"
                say(f"{section}.{name}", value, allowed)


def coordinates(
    mode: str, rounds: int, eval_every: int, arrays: dict[str, Any]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Splits the recorded arrays of runs into coordinates and variables.

    Adds the coordinates of rounds and models. A rate that no policy reads is not in a result.
    """
    coordinates: dict[str, Any] = {name: ("run", arrays[name]) for name in COORDINATES if name in arrays}
    count = arrays["mse"].shape[1]
    coordinates["round"] = np.arange(1, count + 1, dtype=np.int32) * eval_every
    coordinates["model"] = np.array(EXPERT_NAMES)
    return coordinates, {name: array for name, array in arrays.items() if name not in COORDINATES}


def complete(table: Mapping[str, Variable], arrays: Arrays) -> Arrays:
    """Returns the arrays of runs for the variables in `table`, without other arrays.

    All runs of all studies with mode "ensemble" record the same variables, so none is added.
    """
    return {name: arrays[name] for name in table if name in arrays}


def simulation(
    study: Study,
    group: Group,
    cache: DataCache,
    devices: Sequence[jax.Device] | None = None,
    layout: Layout | None = None,
) -> EnsembleSimulation:
    """Builds the simulation of a group on some devices (the local ones if not given) in a layout."""
    return EnsembleSimulation(study, group, cache, devices, layout)


def outputs(study: Study) -> Outputs:
    """Returns the variables and metrics of a study of ensembles."""
    return Outputs(VARIABLES, METRICS, ("mse", "cost", "violations"), "mse", ("dataset",))


KIND = Kind(
    name="ensemble",
    modes=("ensemble",),
    study_keys=STUDY,
    parameters=PARAMETERS,
    for_policies=FOR_POLICIES,
    policy_category="ensemble_policy",
    categories=("regression_dataset",),
    ignored={},
    check=check,
    outputs=outputs,
    coordinates=coordinates,
    complete=complete,
    optional=frozenset(("regret_bound",)),
    simulation=simulation,
    jitted=(advance, start),
)
