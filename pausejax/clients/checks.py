"""What must fit together in a study beyond each value by itself."""

import math
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from pausejax.clients.parameters import PARAMETERS
from pausejax.ensemble import NUM_EXPERTS
from pausejax.parts import Part, everything
from pausejax.study.axes import points, restricted
from pausejax.study.vocabulary import Say, vocabulary

if TYPE_CHECKING:
    from pausejax.study.spec import Study

MAX_RUNS = 2**20
"""A plan holds up to 5 kB per run."""


def check_combinations(say: Say, study: "Study") -> None:
    """Says what does not fit together; whatever is said of one policy is said once."""
    if (runs := _count_runs(study)) > MAX_RUNS:
        say(
            "policy",
            [policy.label for policy in study.policies],
            f"come to {runs} runs; must be <= {MAX_RUNS}",
        )
    if study.mode == "ensemble":
        _check_ensembles(say, study)
        return
    for policy in study.policies:
        if study.mode == "bandit" and _needs_learning(study, everything().get("policy", policy.algorithm)):
            say("policy.name", policy.algorithm, 'selects by what clients learn: needs mode = "training"')
    if study.mode == "bandit":
        if any(value != "iid" for value in _values(study, "partition")):
            say("data.partition", "unequal", 'mode = "bandit" knows equal shares only: "iid"')
        if not all(_values(study, "private")):
            say("privacy.private", False, 'mode = "bandit" has no updates to protect or to release')
    for clients, cohort in _together(study, ("num_clients", "clients_per_round")):
        if cohort > clients:
            say("network.clients_per_round", cohort, f"must be <= network.num_clients = {clients}")
            break
    for factors in study.factors.values():
        laws = list(points(factors, ("latency", "trace_file")))
        traced = [point["trace_file"] for point in laws if point["latency"] == "trace"]
        files = {point["trace_file"] for point in laws} - {""}
        if "" in traced or (files and not traced):
            file = "" if traced else min(files)
            say("network.trace_file", file, 'goes with network.latency = "trace", and only with it')
            break


def _needs_learning(study: "Study", part: Part) -> bool:
    """Whether a policy selects by what clients learn, as one of the study's points builds it."""
    names = sorted(part.reads & PARAMETERS.keys())
    point = next(point for factors in study.factors.values() for point in points(factors, names))
    try:
        return bool(part.build(**point, num_parameters=0).needs_learning)
    except (TypeError, ValueError):
        return False  # The program's own check names what is wrong.


def _check_ensembles(say: Say, study: "Study") -> None:
    if study.selection_gap:
        say("selection_gap", True, 'goes with client selection, not with mode = "ensemble"')
    if study.stop_at_latency:
        say(
            "stop_at_latency",
            study.stop_at_latency,
            'goes with client selection, not with mode = "ensemble"',
        )
    if study.rounds % study.eval_every:
        say("eval_every", study.eval_every, f"must divide rounds = {study.rounds}")
    budget, uplink = (min(_values(study, name)) for name in ("budget", "uplink"))
    if budget < 1:
        say("network.budget", budget, "must be >= 1, the dearest model's cost: condition (a3)")
    if uplink <= NUM_EXPERTS:
        say("network.uplink", uplink, f"must be >= {NUM_EXPERTS + 1}, a report on every model")
    for section, name in (("weights", "exploration_rate"), ("pool", "fit_fraction")):
        for value in _values(study, name):
            if value == 1 or (value == 0 and name == "fit_fraction"):
                say(f"{section}.{name}", value, "must be between 0 and 1")


def _count_runs(study: "Study") -> int:
    """At most so many runs; points that agree in what the policy reads under a condition count each."""
    words, count = vocabulary(study.mode), 0
    for policy in study.policies:
        names = {name for name in study.axes if words.is_read(name, study.mode, policy.algorithm)}
        product = restricted(study.factors[policy.label], names)
        count += math.prod(len(factor.rows) for factor in product) * len(study.seeds)
    return count


def _values(study: "Study", name: str) -> list[Any]:
    """All distinct values of a parameter."""
    return list(dict.fromkeys(value for (value,) in _together(study, (name,))))


def _together(study: "Study", names: Sequence[str]) -> Iterator[tuple[Any, ...]]:
    """The points of some parameters, policy by policy."""
    for factors in study.factors.values():
        for point in points(factors, names):
            yield tuple(point.values())
