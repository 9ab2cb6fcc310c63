"""The Markov chain of Algorithm 2: one Metropolis step over client sets, and a walk of many."""

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp

from pausejax.selection._neighbours import PROPOSAL_WORDS, Lists, Propose, Vertex, swap
from pausejax.selection._order import open_unit

_BLOCK = 16
"""Proposals between two looks at whether every run has finished."""


class Problem(NamedTuple):
    """One instance of (14) in the form that the walk needs."""

    lists: Lists
    ucb: jax.Array
    """float32 [K] by label: ascending and finite."""
    score: jax.Array
    """float32 [K] by label, (α g_k + γ p_k) / m."""
    coldness: jax.Array
    """float32 scalar, κ / C: the inverse temperature of step j is coldness * log(j + 1)."""


class Position(NamedTuple):
    """Where the chain is, and the best it has seen."""

    step: jax.Array
    """int32 scalar, j: the step that is about to be made, from 1."""
    vertex: Vertex
    energy: jax.Array
    best_labels: jax.Array
    best_energy: jax.Array


def energy(problem: Problem, labels: jax.Array) -> jax.Array:
    """E(V), (18), of the set with these ascending labels, int32 [m].

    Summed anew in one fixed order for every set, so it depends on the set alone and cannot drift.
    """
    return problem.ucb[labels[0]] + jnp.sum(problem.score[labels])


def transition(
    problem: Problem, position: Position, bits: jax.Array, propose: Propose, steps: int
) -> Position:
    """One draw of a neighbour and, if it is valid and a step is left, one step of the chain.

    Args:
      bits: uint32 [PROPOSAL_WORDS + 1], random.
      propose: the neighbourhood.
      steps: J.
    """
    proposal = propose(problem.lists, position.vertex, bits[:-1])
    inspected = proposal.valid & (position.step <= steps)
    candidate = swap(problem.lists, position.vertex, proposal.leaving, proposal.entering)
    candidate_energy = energy(problem, candidate.labels)
    gain = candidate_energy - position.energy
    cooling = problem.coldness * jnp.log(position.step.astype(jnp.float32) + 1)
    accepted = inspected & ((gain >= 0) | (open_unit(bits[-1]) <= jnp.exp(gain * cooling)))
    vertex = jax.tree.map(partial(jnp.where, accepted), candidate, position.vertex)
    new_energy = jnp.where(accepted, candidate_energy, position.energy)
    better = new_energy > position.best_energy
    return Position(
        position.step + inspected,
        vertex,
        new_energy,
        jnp.where(better, vertex.labels, position.best_labels),
        jnp.where(better, new_energy, position.best_energy),
    )


def walk(
    key: jax.Array, problem: Problem, start: Vertex, propose: Propose, steps: int, traced: bool
) -> tuple[jax.Array, jax.Array | None]:
    """The best labels of a walk of `steps` steps, int32 [m], and its energies, [steps + 1], if traced.

    A proposal that has to be drawn again costs its own run one turn and makes no other run of a batch wait: a
    run counts its own steps, and the loop ends when the last run has made all of its own. So the number of
    turns is that of the slowest run, not the sum over the steps of the slowest at each.
    """
    start_energy = energy(problem, start.labels)
    trace = jnp.full(steps + 1, start_energy) if traced else None
    m, size = start.labels.shape[0], problem.lists.size
    if isinstance(size, int) and size == m:
        return start.labels, trace
    # Where nobody is left to swap in, no draw is ever valid: all steps count as made.
    first = jnp.int32(1) if isinstance(size, int) else jnp.where(size > m, 1, steps + 1).astype(jnp.int32)
    position = Position(first, start, start_energy, start.labels, start_energy)

    def turn(carry: tuple[Position, jax.Array | None], bits: jax.Array) -> tuple[tuple, None]:
        position, trace = carry
        after = transition(problem, position, bits, propose, steps)
        if traced:
            made = jnp.where(after.step > position.step, position.step, steps + 1)
            trace = trace.at[made].set(after.energy, mode="drop")
        return (after, trace), None

    def block(carry: tuple) -> tuple:
        number, position, trace = carry
        bits = jax.random.bits(jax.random.fold_in(key, number), (_BLOCK, PROPOSAL_WORDS + 1))
        (position, trace), _ = jax.lax.scan(turn, (position, trace), bits)
        return number + 1, position, trace

    _, position, trace = jax.lax.while_loop(
        lambda c: c[1].step <= steps, block, (jnp.int32(0), position, trace)
    )
    return position.best_labels, trace
