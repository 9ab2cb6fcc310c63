"""What a spec may say: one vocabulary for client selection, one for ensembles of models."""

import dataclasses
import difflib
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeAlias

import pausejax.policies  # noqa: F401  (registers those of the package)
from pausejax.clients.parameters import (
    ALIASES,
    CONDITIONS,
    LEARNING_ONLY,
    LEARNING_SECTIONS,
    PARAMETERS,
    POLICY_SECTIONS,
    Parameter,
)
from pausejax.ensemble import parameters as ensemble_parameters
from pausejax.parts import everything

Say: TypeAlias = Callable[[str, Any, str], None]
"""Reports a mistake: takes a key, its value, and what is allowed."""

MODES = ("training", "bandit", "ensemble")


@dataclasses.dataclass(frozen=True)
class Vocabulary:
    """The keys and names that specs of some modes may use, and who reads what."""

    study: Mapping[str, Parameter]
    """Study-level keys: they shape the result's dimensions, so they can't be axes."""
    parameters: Mapping[str, Parameter]
    aliases: Mapping[str, str]
    """Symbol -> name."""
    policies: Mapping[str, Any]
    parameters_of: Callable[[str], frozenset[str]]
    """The parameters that a policy reads."""
    policy_parameters: frozenset[str]
    """Read by nothing but the policies, so a policy that does not take one has no such axis."""
    learning_parameters: frozenset[str] = frozenset()
    """Read by nothing in mode "bandit"."""
    conditions: Mapping[str, tuple[str, frozenset[str]]] = dataclasses.field(default_factory=dict)
    """name -> (another parameter, values of it): the first is read only where the other has such a value."""

    @property
    def sections(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(p.section for p in self.parameters.values()))

    def is_idle(self, name: str, algorithm: str) -> bool:
        """Whether a parameter is for policies alone and this one does not read it."""
        return name in self.policy_parameters and name not in self.parameters_of(algorithm)

    def is_read(self, name: str, mode: str, algorithm: str) -> bool:
        """Whether a run depends on a parameter."""
        if name in self.policy_parameters:
            return name in self.parameters_of(algorithm)
        return mode != "bandit" or name not in self.learning_parameters


_STUDY = {
    p.name: p
    for p in (
        Parameter("rounds", "", 200, "rounds per run", low=1),
        Parameter("eval_every", "", 10, "rounds between evaluations", low=1),
        Parameter("mode", "", "training", "what is simulated", choices=MODES),
        Parameter("name", "", "", "title of the study"),
        Parameter("selection_gap", "", False, "record what (14) loses against its maximum"),
        Parameter("stop_at_latency", "", 0.0, "end a run at this simulated time, seconds; 0: never", low=0),
    )
}

CLIENTS = Vocabulary(
    study=_STUDY,
    parameters=PARAMETERS,
    aliases=ALIASES,
    policies={},
    parameters_of=lambda policy: everything().get("policy", policy).reads,
    policy_parameters=frozenset(p.name for p in PARAMETERS.values() if p.section in POLICY_SECTIONS),
    learning_parameters=LEARNING_ONLY
    | frozenset(p.name for p in PARAMETERS.values() if p.section in LEARNING_SECTIONS),
    conditions=CONDITIONS,
)
ENSEMBLE = Vocabulary(
    study=_STUDY | ensemble_parameters.STUDY,
    parameters=ensemble_parameters.PARAMETERS,
    aliases=ensemble_parameters.ALIASES,
    policies=ensemble_parameters.POLICIES,
    parameters_of=lambda policy: ensemble_parameters.POLICIES[policy],
    policy_parameters=ensemble_parameters.POLICY_PARAMETERS,
)


def vocabulary(mode: str) -> Vocabulary:
    """The vocabulary of a mode; that of client selection for an unknown one."""
    if mode == "ensemble":
        return ENSEMBLE
    # A policy may be registered at any time.
    return dataclasses.replace(CLIENTS, policies=everything().of("policy"))


def nearest(key: str, known: Iterable[str]) -> str:
    """`; did you mean 'x'?` for the nearest known key, or nothing."""
    match = difflib.get_close_matches(key, list(known), n=1, cutoff=0.5)
    return f"; did you mean {match[0]!r}?" if match else ""
