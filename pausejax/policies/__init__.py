"""Client-selection policies, by the name that specs use."""

import inspect
from collections.abc import Callable

from pausejax.policies.base import Clients, Cohort, Feedback, Policy, View, cohort, memoryless
from pausejax.policies.fastest import fastest
from pausejax.policies.fedavg import fedavg
from pausejax.policies.pause import pause
from pausejax.policies.random import random

POLICIES: dict[str, Callable[..., Policy]] = {
    "fastest": fastest,
    "fedavg": fedavg,
    "pause": pause,
    "random": random,
}
"""A policy reads exactly the parameters that its constructor names."""


def parameters_of(policy: str) -> frozenset[str]:
    """The names of the spec parameters that a policy reads."""
    return frozenset(inspect.signature(POLICIES[policy]).parameters)


__all__ = [
    "POLICIES",
    "Clients",
    "Cohort",
    "Feedback",
    "Policy",
    "View",
    "cohort",
    "fastest",
    "fedavg",
    "memoryless",
    "parameters_of",
    "pause",
    "random",
]
