"""Runs a plan whose mode is "ensemble": one pool of models per data set, one program per policy and pool."""

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import xarray as xr
from rich import box
from rich.console import Group as Lines
from rich.table import Table

from pausejax.ensemble import Pool, Runs, one_pass, simulate, stream_length
from pausejax.sweep import store
from pausejax.sweep.build import Sources
from pausejax.sweep.ensemble_parameters import PARAMETERS
from pausejax.sweep.plan import Group, Plan
from pausejax.sweep.spec import SpecError

# name -> (dims after run, dtype, fill value, units, meaning)
VARIABLES: dict[str, tuple[tuple[str, ...], str, float, str, str]] = {
    "mse": (("round",), "float32", np.nan, "1", "mean squared error so far, MSE_t of the EFL-FG paper"),
    "best_expert_mse": (("round",), "float32", np.nan, "1", "the same of the best single model so far"),
    "regret": (("round",), "float32", np.nan, "1", "cumulative regret, (10)"),
    "realized_regret": (("round",), "float32", np.nan, "1", "the same with the losses incurred"),
    "regret_bound": (("round",), "float32", np.nan, "1", "bound (11) on the regret; EFL-FG only"),
    "violations": (("round",), "float32", np.nan, "1", "share of rounds so far that cost more than B"),
    "cost": (("round",), "float32", np.nan, "1", "mean cost sent per round so far; largest model = 1"),
    "reports": (("round",), "int32", -1, "1", "cumulative number of clients that reported"),
    "sent_counts": (("model",), "int32", -1, "1", "rounds in which each model was sent"),
    "model_cost": (("model",), "float32", np.nan, "1", "cost of each model; largest model = 1"),
}
_POOL_OPTIONS = ("fit_fraction", "ridge", "feature_scaling", "kernel_parameters")
# Measured on two CPU cores with 22 models; EFL-FG, the slowest policy.
_SECONDS_PER_ROUND = 1e-5


def run(plan: Plan, sources: Sources, progress: Callable[[int], None]) -> xr.Dataset:
    """Simulates every run of a plan and returns the labelled result, runs in the plan's order.

    Args:
      plan: of mode "ensemble".
      sources: where data come from.
      progress: called with how many rounds × runs have been advanced; runs alone where `rounds` is 0.

    Raises:
      SpecError: data are missing or wrong, or too few for so many clients; nothing has been simulated then.
    """
    rounds = [_rounds(plan, group, sources) for group in plan.groups]
    pools = [_pool(group, sources) for group in plan.groups]

    def play(group: Group, pool: Pool, rounds: int) -> dict[str, np.ndarray]:
        arrays = simulate(
            pool,
            group.algorithm,
            _runs(plan, group, rounds),
            rounds=rounds,
            num_clients=group.static["num_clients"],
            record_every=plan.study.eval_every,
            progress=lambda runs: progress(runs * max(plan.study.rounds, 1)),
        )
        costs = np.broadcast_to(pool.costs, (len(group.members), len(pool.costs)))
        return {**arrays, "model_cost": costs}

    # XLA compiles outside the interpreter's lock, so programs compile side by side while others run.
    with ThreadPoolExecutor(os.cpu_count()) as threads:
        parts = list(threads.map(play, plan.groups, pools, rounds))
    return _dataset(plan, rounds, pools[0].names, parts)


def plan_table(plan: Plan, sources: Sources) -> Lines:
    """What the plan comes to: runs, rounds and a rough time per group; nothing is simulated."""
    table = Table(box=box.SIMPLE_HEAD)
    for heading in ("program", "runs", "rounds", "time, s (rough)"):
        table.add_column(heading, justify="left" if heading == "program" else "right")
    total = 0.0
    for group in plan.groups:
        rounds = _rounds(plan, group, sources)
        seconds = len(group.members) * rounds * _SECONDS_PER_ROUND
        total += seconds
        labels = ", ".join(dict.fromkeys(plan.runs[position].policy for position in group.members))
        label = f"{group.algorithm} on {group.static['dataset']} ({labels})"
        table.add_row(label, str(len(group.members)), str(rounds), f"{seconds:.1f}")
    return Lines(
        f"{len(plan.runs)} runs in {len(plan.groups)} groups, one compilation each; "
        f"axes: {', '.join(plan.axes) or 'none'}; seeds: {len(plan.study.seeds)}",
        table,
        f"about {total:.0f} s after compilation",
    )


def _pool(group: Group, sources: Sources) -> Pool:
    static = group.static
    options = {name: static[name] for name in _POOL_OPTIONS}
    try:
        return sources.pool(static["dataset"], seed=static["pool_seed"], **options)
    except ValueError as error:
        raise SpecError([str(error)]) from None


def _rounds(plan: Plan, group: Group, sources: Sources) -> int:
    """T; without one, as many rounds as the stream lasts, in whole steps of the record."""
    dataset, num_clients = group.static["dataset"], group.static["num_clients"]
    try:
        rows = stream_length(len(sources.table(dataset).targets), group.static["fit_fraction"])
    except ValueError as error:
        raise SpecError([str(error)]) from None
    if num_clients > rows:
        problem = f"must be <= {rows}, the samples of {dataset} that no model is fitted on"
        raise SpecError([f"network.num_clients = {num_clients}: {problem}"])
    every = plan.study.eval_every
    return plan.study.rounds or max(one_pass(rows, num_clients) // every, 1) * every


def _runs(plan: Plan, group: Group, rounds: int) -> Runs:
    def column(name: str, default: float = 0.0) -> np.ndarray:
        """The runs' values; the default where the spec says 0 or the policy does not read the parameter."""
        return np.array([plan.runs[position].values.get(name) or default for position in group.members])

    return Runs(
        seed=np.array([plan.runs[position].seed for position in group.members]),
        learning_rate=column("learning_rate", rounds**-0.5),
        exploration_rate=column("exploration_rate", rounds**-0.5),
        budget=column("budget"),
        uplink=column("uplink"),
        spending=column("spending", 1.0),
    )


def _dataset(
    plan: Plan, rounds: list[int], models: tuple[str, ...], parts: list[dict[str, np.ndarray]]
) -> xr.Dataset:
    every, count = plan.study.eval_every, len(plan.runs)
    played = np.empty(count, np.int32)
    rates = {name: np.full(count, np.nan) for name in ("learning_rate", "exploration_rate")}
    for group, group_rounds in zip(plan.groups, rounds, strict=True):
        members = list(group.members)
        played[members] = group_rounds
        settings = _runs(plan, group, group_rounds)
        for name, values in rates.items():
            if name in plan.runs[members[0]].values:
                values[members] = getattr(settings, name)
    sizes = {"round": played.max() // every, "model": len(models)}
    variables = {}
    for name, (dims, dtype, fill, units, meaning) in VARIABLES.items():
        whole = np.full((count, *(sizes[dim] for dim in dims)), fill, dtype)
        for group, part in zip(plan.groups, parts, strict=True):
            if name in part:
                whole[list(group.members), : part[name].shape[1]] = part[name]
        variables[name] = (("run", *dims), whole, {"units": units, "long_name": meaning})
    coords: dict[str, Any] = dict(store.coordinates(plan))
    for name, values in rates.items():
        if not np.isnan(values).all():
            # 1/√T put in where the spec leaves the rate to the study.
            coords |= dict.fromkeys((name, *PARAMETERS[name].aliases), ("run", values))
    coords["rounds_played"] = ("run", played)
    coords["round"] = np.arange(every, played.max() + 1, every, dtype=np.int32)
    coords["model"] = np.array(models)
    return xr.Dataset(variables, coords, store.provenance(plan))
