"""Checks that the values of a study of client selection do not contradict each other."""

import dataclasses

from pausejax.clients.expected_regret import MOST_SETS, count_sets
from pausejax.clients.outputs import metrics, variables
from pausejax.clients.parameters import learns
from pausejax.clients.variables import METRICS, VARIABLES
from pausejax.network.laws import Speeds
from pausejax.parts import File, PartError
from pausejax.study.axes import points
from pausejax.study.checks import count_runs, refuse_names, together, values_of
from pausejax.study.spec import SpecError
from pausejax.study.study import Study
from pausejax.study.vocabulary import Say

NEEDS_LEARNING = 'selects by losses or updates of clients. Set mode = "training"'
_MAX_CLIENTS = 2**28


def check(say: Say, study: Study) -> None:
    """Reports values of a study that contradict each other, each problem once.

    Raises:
      SpecError: a parameter of a user's part has the name of a variable or metric of results.
    """
    if not learns(study.mode):
        _check_bandit(say, study)
    else:
        _check_last_models(say, study)
    for clients, cohort in together(study, ("num_clients", "clients_per_round")):
        if cohort > clients:
            say("network.clients_per_round", cohort, f"must be <= network.num_clients = {clients}")
            break
    _check_parts(say, study)
    if study.expected_regret:
        _check_expected_regret(say, study)
    _check_size(say, study)
    _check_speeds(say, study)
    _check_files(say, study)
    try:
        of_study = variables(study).keys() | metrics(study).keys()
    except PartError as error:
        raise SpecError([str(error)]) from error
    refuse_names(study, VARIABLES.keys() | METRICS.keys() | of_study)


def _check_size(say: Say, study: Study) -> None:
    """Reports a study with more than `_MAX_CLIENTS` clients in all runs.

    Each client of a run needs memory.
    """
    runs, clients = count_runs(study), max(values_of(study, "num_clients"))
    if runs * clients > _MAX_CLIENTS:
        say("network.num_clients", clients, f"num_clients times the {runs} runs must be <= {_MAX_CLIENTS}")


def _check_parts(say: Say, study: Study) -> None:
    """Reports parts and numbers that contradict each other."""
    for algorithm, weight in together(study, ("federated_algorithm", "proximal_weight")):
        if algorithm == "fedprox" and not weight:
            say("training.proximal_weight", weight, 'must be > 0 with federated_algorithm = "fedprox"')
            break
        if weight and algorithm not in ("fedavg", "fedprox"):
            allowed = f'must be 0 with federated_algorithm = "{algorithm}"'
            say("training.proximal_weight", weight, f'{allowed}. Only "fedavg" and "fedprox" read it')
            break
    for mechanism, private, limit in together(study, ("mechanism", "private", "stop_at_epsilon")):
        if limit and (mechanism == "none" or not private):
            say(
                "privacy.stop_at_epsilon",
                limit,
                "needs a privacy mechanism. Without one, leakage is infinite",
            )
            break
    endings = set(values_of(study, "ending"))
    unread = study.words.parameters["late"].unread_with
    if "released" in values_of(study, "late") and unread and endings <= unread[1]:
        say("network.late", "released", 'needs an ending with late clients, such as ending = "deadline"')
    if study.selection_gap and "all" not in endings:
        say("selection_gap", True, 'needs rounds that wait for all selected clients. Set ending = "all"')
    for mechanism, private in together(study, ("mechanism", "private")):
        if not private and mechanism not in ("laplace", "none"):
            say(
                "privacy.private",
                False,
                f'means mechanism = "none", but mechanism is "{mechanism}". Leave one of them out',
            )
            break


def _check_speeds(say: Say, study: Study) -> None:
    """Reports a group of fast clients that is slower than the group of slow clients."""
    fields = [field.name for field in dataclasses.fields(Speeds)]
    section = {name: study.words.parameters[name].section for name in ("latency", "min_latency", *fields)}
    for law, floor, *means in together(study, tuple(section)):
        part = study.parts.get("latency", law)
        if Speeds in part.groups.values() and (problem := Speeds(*means).problem(floor)):
            name, value, allowed = problem
            say(f"{section[name]}.{name}", value, allowed)
            return


def _check_last_models(say: Say, study: Study) -> None:
    """Reports keys that need the models after the last round, if there are none or no samples for them."""
    for key in ("keep_models", "client_metrics"):
        if getattr(study, key) and study.stop_at_latency:
            why = "needs models after the last round. Remove stop_at_latency, which ends runs before it"
            say(key, True, why)
    if study.client_metrics and not all(values_of(study, "held_out_share")):
        say("client_metrics", True, "needs held-out samples of every client. Set data.held_out_share > 0")


def _check_expected_regret(say: Say, study: Study) -> None:
    for clients, cohort in together(study, ("num_clients", "clients_per_round")):
        if count_sets(clients, cohort) > MOST_SETS:
            say(
                "expected_regret",
                True,
                f"compares all cohorts, at most {MOST_SETS:,}. {cohort} of {clients} clients make "
                f"{count_sets(clients, cohort):.3g} cohorts. Lower num_clients or clients_per_round",
            )
            break
    alone = {"availability": "always", "failure_probability": 0.0, "ending": "all", "stop_at_epsilon": 0.0}
    for name, only in alone.items():
        if any(value != only for value in values_of(study, name)):
            say("expected_regret", True, f"needs {name} = {only!r}")


def _check_bandit(say: Say, study: Study) -> None:
    for policy in study.policies:
        if needs_learning(study, policy.algorithm):
            say("policy.name", policy.algorithm, NEEDS_LEARNING)
    for key in ("keep_models", "client_metrics"):
        if getattr(study, key):
            say(key, True, 'mode = "bandit" trains no model. Set mode = "training"')
    if any(value != "iid" for value in values_of(study, "partition")):
        say("data.partition", "unequal", 'must be "iid" with mode = "bandit": all data shares are equal')
    if "none" in values_of(study, "mechanism"):
        say("privacy.mechanism", "none", 'not allowed with mode = "bandit", which trains no model')
    if not all(values_of(study, "private")):
        say("privacy.private", False, 'must be true with mode = "bandit", which trains no model')


def needs_learning(study: Study, algorithm: str) -> bool:
    """Returns whether a policy selects by clients' losses or updates.

    The policy is built with the first combination of its values in the study.
    """
    part = study.parts.get(study.kind.policy_category, algorithm)
    label = next(policy.label for policy in study.policies if policy.algorithm == algorithm)
    names = sorted(part.reads & study.axes.keys())
    point = next(points(study.factors[label], names))
    try:
        built = part.build(**{"num_parameters": 0, **point})
        return bool(built.needs_learning or built.needs_updates)
    except (AttributeError, TypeError, ValueError):
        return False  # Building the group's static values reports this error later, with a message.


def _check_files(say: Say, study: Study) -> None:
    """Reports parts whose file is not given, and files that no part reads."""
    for name, parameter in study.words.parameters.items():
        for key, parts in study.words.readers.get(name, {}).items():
            if parameter.kind is not File or not key:
                continue
            section = study.words.parameters[key].section
            for factors in study.factors.values():
                pairs = [(point[key], point[name]) for point in points(factors, (key, name))]
                lacking = any(part in parts and not file for part, file in pairs)
                given = [file for _, file in pairs if file and file != parameter.default]
                idle = not lacking and given and not any(part in parts for part, _ in pairs)
                if lacking or idle:
                    file = "" if lacking else given[0]
                    wanted = " or ".join(f'"{part}"' for part in sorted(parts))
                    say(
                        f"{parameter.section}.{name}",
                        file,
                        f"needed with {section}.{key} = {wanted}"
                        if lacking
                        else f"read only with {section}.{key} = {wanted}. Leave it out",
                    )
                    break
