"""What a policy must keep to: shapes and types when it is traced, selections when they have been played."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from pausejax.policies.base import Clients, Cohort, Feedback, Policy, PolicyState, View


def checked(policy: Policy, name: str, num_clients: int) -> Policy:
    """The policy, which raises an error in its name if what it returns has a wrong shape or type.

    The checks are made when it is traced and leave nothing in a compiled program.

    Args:
      policy: any.
      name: how errors call it.
      num_clients: K.

    Returns:
      A policy whose functions raise ValueError.
    """

    def say(problem: str) -> ValueError:
        return ValueError(f"policy {name}: {problem}")

    def select(key: jax.Array, state: PolicyState, view: View) -> Cohort:
        found = policy.select(key, state, view)
        if not isinstance(found, Cohort):
            raise say(f"select returns a {type(found).__name__}; must be a Cohort")
        members, weights = (jnp.asarray(x) for x in found)
        if members.dtype != jnp.int32 or members.ndim != 1 or not 1 <= members.size <= num_clients:
            raise say(f"select returns members {_of(members)}; must be int32 [n], n in 1..{num_clients}")
        if weights.dtype != jnp.float32 or weights.shape != members.shape:
            raise say(f"select returns weights {_of(weights)}; must be float32 [{members.size}]")
        return Cohort(members, weights)

    def init(key: jax.Array, clients: Clients) -> PolicyState:
        return jax.tree.map(jnp.asarray, policy.init(key, clients))

    def update(state: PolicyState, view: View, feedback: Feedback) -> PolicyState:
        after = policy.update(state, view, feedback)
        before: Any = jax.tree.structure(state)
        if jax.tree.structure(after) != before:
            raise say("update returns another structure of state than it was given")
        for (path, old), new in zip(jax.tree.leaves_with_path(state), jax.tree.leaves(after), strict=True):
            if jnp.shape(new) != jnp.shape(old) or jnp.result_type(new) != jnp.result_type(old):
                place = jax.tree_util.keystr(path)
                raise say(f"update returns state{place} {_of(new)}; must be {_of(old)} as before")
        return after

    return policy._replace(init=init, select=select, update=update)


def problems_of(
    selected: np.ndarray, num_clients: int, available: np.ndarray | None = None
) -> tuple[str, ...]:
    """What is wrong with the selections of one run: a line for each kind of mistake, on the first of them.

    Args:
      selected: int [rounds, n]; -1 pads.
      num_clients: K.
      available: bool [rounds, K], who could be selected; None for everyone.
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
        (unknown, selected, f"is none of the clients 0 to {num_clients - 1}"),
        (twice, ascending, "is selected twice"),
        (absent, selected, "is not available"),
    )
    problems = []
    for wrong, clients, what in found:
        if wrong.any():
            row, slot = np.argwhere(wrong)[0]
            problems.append(f"round {row + 1}: client {clients[row, slot]} {what}")
    return tuple(problems)


def _of(x: Any) -> str:
    return f"{jnp.result_type(x).name} {list(jnp.shape(x))}"
