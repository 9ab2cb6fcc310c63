"""Checks policies: shapes and types when a policy is traced, selections after rounds are played."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from pausejax.parts import Part, PartError
from pausejax.parts.check import expect_type, expect_types, type_of
from pausejax.policies.base import Clients, Cohort, Feedback, Policy, PolicyState, View

FINE, UNFIT_MEMBERS, UNFIT_WEIGHT, UNFIT_SUM, UNFIT_TOTAL, ABSENT = range(6)
"""Codes of `fault`; ABSENT + k means that client k is selected but not available."""

TOLERANCE = 1e-3
"""Largest difference from 1 of the sum of a cohort's weights."""


class Fault(NamedTuple):
    """Invalid value in a cohort."""

    code: jax.Array | np.ndarray
    """int32, code of the mistake; FINE (0) if there is none."""
    weight: jax.Array | np.ndarray
    """float32, the invalid number: a weight (UNFIT_WEIGHT), the sum of the weights (UNFIT_SUM), or
    `Cohort.total` (UNFIT_TOTAL)."""


def checked(policy: Any, part: Part, num_clients: int) -> Policy:
    """Returns the policy with functions that check the shapes and types of their results.

    The checks run when the policy is traced; they add nothing to a compiled program.

    Args:
      policy: the return value of the part.
      part: the part of the policy.
      num_clients: K, the number of clients.

    Returns:
      A policy whose functions raise PartError for a wrong shape or type.

    Raises:
      PartError: `policy` is not a `Policy`.
    """

    def say(problem: str) -> PartError:
        return PartError(f"{part.where}: {problem}")

    expect_type(part, policy, Policy, "pausejax.policies.Policy")

    def select(key: jax.Array, state: PolicyState, view: View) -> Cohort:
        with part.blamed("select"):
            found = policy.select(key, state, view)
        if not isinstance(found, Cohort):
            raise say(f"select must return a Cohort, not {type(found).__name__}")
        members, weights = jnp.asarray(found.members), jnp.asarray(found.weights)
        if members.dtype != jnp.int32 or members.ndim != 1 or not 1 <= members.size <= num_clients:
            wanted = f"int32 [n] with n from 1 to {num_clients}"
            raise say(f"select: members must be {wanted}, not {type_of(members)}")
        if weights.dtype != jnp.float32 or weights.shape != members.shape:
            raise say(f"select: weights must be float32 [{members.size}], not {type_of(weights)}")
        if found.total is None:
            return Cohort(members, weights, jnp.sum(members >= 0, dtype=jnp.float32))
        total = jnp.asarray(found.total)
        if total.dtype != jnp.float32 or total.ndim:
            raise say(f"select: total must be a float32 scalar, not {type_of(total)}")
        return Cohort(members, weights, total)

    def init(key: jax.Array, clients: Clients) -> PolicyState:
        with part.blamed("init"):
            return jax.tree.map(jnp.asarray, policy.init(key, clients))

    def update(state: PolicyState, view: View, feedback: Feedback) -> PolicyState:
        with part.blamed("update"):
            after = policy.update(state, view, feedback)
        expect_types(part, "update", state, after)
        return after

    return policy._replace(init=init, select=select, update=update)


def fault(num_clients: int, cohort: Cohort, available: jax.Array | None) -> Fault:
    """Returns the first mistake in a cohort, or the code FINE; scalars.

    Members must be distinct available clients. Weights must be finite and >= 0, and 0 at pads. The weights of
    a cohort with members must sum to 1; another sum would silently change the size of the server's step.
    `Cohort.total` must be finite and > 0.

    Args:
      num_clients: K, the number of clients.
      cohort: the cohort, with members ascending and pads at the end.
      available: bool [K], the available clients; None if all clients are available.
    """
    members, weights = cohort.members, cohort.weights
    there = members >= 0
    twice = jnp.any((members[1:] == members[:-1]) & there[1:])
    unfit = twice | jnp.any((members < -1) | (members >= num_clients))
    wrong = ~(jnp.isfinite(weights) & (weights >= 0) & (there | (weights == 0)))
    value = jnp.sum(weights)
    uneven = jnp.any(there) & (jnp.abs(value - 1) > TOLERANCE)
    found = jnp.where(uneven, UNFIT_SUM, FINE)
    if cohort.total is not None:
        unfit_total = jnp.any(there) & ~uneven & ~(jnp.isfinite(cohort.total) & (cohort.total > 0))
        found, value = jnp.where(unfit_total, UNFIT_TOTAL, found), jnp.where(unfit_total, cohort.total, value)
    found = jnp.where(jnp.any(wrong), UNFIT_WEIGHT, found)
    if available is not None:
        absent = there & ~available[members]
        found = jnp.where(jnp.any(absent), ABSENT + members[jnp.argmax(absent)], found)
    code = jnp.where(unfit, UNFIT_MEMBERS, found).astype(jnp.int32)
    return Fault(code, jnp.where(jnp.any(wrong), weights[jnp.argmax(wrong)], value))


def refuse_faults(
    part: Part, faults: Fault, selected: np.ndarray, num_clients: int, first_round: int
) -> None:
    """Raises an error if a round has an invalid cohort.

    Args:
      part: the part of the policy.
      faults: [runs, rounds], from `fault`.
      selected: int32 [runs, rounds, n], the selected clients.
      num_clients: K, the number of clients.
      first_round: the number of the first of these rounds.

    Raises:
      PartError: a cohort is invalid; the message names the first such round.
    """
    codes = np.asarray(faults.code)
    if not codes.any():
        return
    column = int((codes != FINE).any(axis=0).argmax())
    row = int((codes[:, column] != FINE).argmax())
    found, number = int(codes[row, column]), first_round + column
    weight = float(faults.weight[row, column])
    if found == UNFIT_MEMBERS:
        what = problems_of(selected[row, column][None], num_clients, first_round=number)[0]
    elif found == UNFIT_WEIGHT:
        what = f"round {number}: a weight of the cohort is {weight:g}; must be finite, >= 0, and 0 for a pad"
    elif found == UNFIT_SUM:
        what = f"round {number}: the sum of the cohort's weights is {weight:g}; must be 1 ± {TOLERANCE:g}"
    elif found == UNFIT_TOTAL:
        what = f"round {number}: the cohort's total is {weight:g}; must be finite and > 0"
    else:
        what = f"round {number}: client {found - ABSENT} is selected, but is not available"
    raise PartError(f"{part.where}: {what}")


def problems_of(
    selected: np.ndarray,
    num_clients: int,
    available: np.ndarray | None = None,
    *,
    first_round: int = 1,
) -> tuple[str, ...]:
    """Returns a line for each kind of error in the selections of one run, about its first occurrence.

    Args:
      selected: int [rounds, n], the selected clients; -1 pads.
      num_clients: K, the number of clients.
      available: bool [rounds, K], the available clients; None if all clients are available.
      first_round: the number of the first of these rounds.
    """
    selected = np.asarray(selected)
    there = selected >= 0
    unknown = there & (selected >= num_clients) | (selected < -1)
    ascending = np.sort(np.where(there, selected, -1), axis=1)
    twice = np.zeros_like(there)
    twice[:, 1:] = (ascending[:, 1:] == ascending[:, :-1]) & (ascending[:, 1:] >= 0)
    absent = np.zeros_like(there)
    if available is not None:
        known = np.clip(selected, 0, num_clients - 1)
        absent = there & ~unknown & ~np.take_along_axis(np.asarray(available, bool), known, axis=1)
    found = (
        (unknown, selected, f"does not exist; must be from 0 to {num_clients - 1}"),
        (twice, ascending, "is selected twice"),
        (absent, selected, "is selected, but is not available"),
    )
    problems = []
    for wrong, clients, what in found:
        if wrong.any():
            row, slot = np.argwhere(wrong)[0]
            problems.append(f"round {first_round + row}: client {clients[row, slot]} {what}")
    return tuple(problems)
