"""Client-selection policies, by the name that specs use."""

import inspect
from collections.abc import Callable

from pausejax.policies.bandit_generalization import bandit_generalization
from pausejax.policies.base import Clients, Cohort, Feedback, Policy, View, cohort, memoryless
from pausejax.policies.clustered import clustered_similarity, clustered_size
from pausejax.policies.cs_ucb import cs_ucb
from pausejax.policies.fastest import fastest
from pausejax.policies.fedavg import fedavg
from pausejax.policies.fedcs import fedcs
from pausejax.policies.oort import oort
from pausejax.policies.pause import pause
from pausejax.policies.power_of_choice import power_of_choice
from pausejax.policies.random import random
from pausejax.policies.sa_pause import sa_pause
from pausejax.policies.vanilla_sa import vanilla_sa

POLICIES: dict[str, Callable[..., Policy]] = {
    policy.__name__: policy
    for policy in (
        bandit_generalization,
        clustered_similarity,
        clustered_size,
        cs_ucb,
        fastest,
        fedavg,
        fedcs,
        oort,
        pause,
        power_of_choice,
        random,
        sa_pause,
        vanilla_sa,
    )
}
"""A policy reads exactly the parameters that its constructor names; add your own with `register`."""

LEARNERS = {"clustered_similarity", "oort", "power_of_choice"}
"""Policies that select by losses or updates, so that mode "bandit" has nothing for them."""


def register(constructor: Callable[..., Policy]) -> Callable[..., Policy]:
    """Adds a policy under its constructor's name; usable as a decorator.

    Args:
      constructor: takes keyword arguments named like parameters of a spec, and returns a `Policy`.

    Raises:
      ValueError: the name is taken by another constructor.
    """
    name = constructor.__name__
    if POLICIES.setdefault(name, constructor) is not constructor:
        raise ValueError(f"constructor: a policy named {name!r} exists already")
    return constructor


def parameters_of(policy: str) -> frozenset[str]:
    """The names of the parameters that a policy reads."""
    return frozenset(inspect.signature(POLICIES[policy]).parameters)


__all__ = [
    "LEARNERS",
    "POLICIES",
    "Clients",
    "Cohort",
    "Feedback",
    "Policy",
    "View",
    "cohort",
    "memoryless",
    "parameters_of",
    "register",
    *POLICIES,
]
