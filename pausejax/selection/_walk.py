"""The Markov chain of Algorithm 2: one Metropolis step over client sets, and a walk of many."""

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from pausejax.rounding import rounded
from pausejax.selection import _fixed as fixed
from pausejax.selection._neighbours import PROPOSAL_WORDS, Lists, Propose, Vertex, swap
from pausejax.selection._order import open_unit

_BLOCK = 16
_UNROLL = 4
"""Turns in one body of the loop, except on a CPU, where it would take three times as long."""
"""Proposals between two looks at whether every run has finished."""


class Problem(NamedTuple):
    """One instance of (14) in the form that the walk needs; numbers in fixed point, see `_fixed`."""

    lists: Lists
    terms: jax.Array
    """int32 [K, 4] by label: score, (α g_k + γ p_k) / m, and ucb, ascending and finite."""
    unit: jax.Array
    """int32 scalar, the exponent of the fixed point."""
    coldness: jax.Array
    """float32 scalar, κ / C: the inverse temperature of step j is coldness * log(j + 1)."""


class Position(NamedTuple):
    """Where the chain is, and the best it has seen; sums and energies are in fixed point."""

    step: jax.Array
    """int32 scalar, j: the step that is about to be made, from 1."""
    vertex: Vertex
    worth: jax.Array
    """int32 [4], the sum of the members' scores and E(V), (18). Apart, XLA:CPU works each out anew."""
    best_labels: jax.Array
    best_energy: jax.Array
    """int32 [2]."""


def make_problem(
    lists: Lists, ucb: jax.Array, score: jax.Array, m: int, coldness: jax.Array | float
) -> Problem:
    """The problem of choosing m clients by finite ucb and score, float32 [K] by client."""
    unit = fixed.unit((ucb, 1), (score, m))
    terms = (*fixed.encode(score[lists.client], unit), *fixed.encode(ucb[lists.client], unit))
    return Problem(lists, jnp.stack(terms, axis=1), unit, jnp.asarray(coldness, jnp.float32))


def start_at(problem: Problem, vertex: Vertex, step: int | jax.Array = 1) -> Position:
    """The position of a walk that has seen nothing but this set."""
    terms = problem.terms[vertex.labels]
    score = fixed.total(fixed.Fixed(terms[:, 0], terms[:, 1]))
    energy = fixed.add(score, fixed.Fixed(terms[0, 2], terms[0, 3]))
    worth = jnp.stack([*score, *energy])
    return Position(jnp.asarray(step, jnp.int32), vertex, worth, vertex.labels, worth[2:])


def energy_of(problem: Problem, position: Position) -> jax.Array:
    """E(V), float32 scalar."""
    return fixed.decode(fixed.Fixed(*position.worth[2:]), problem.unit)


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
    # One gather for all three: on a CPU it costs as much as the rest of the step.
    labels = jnp.stack([proposal.entering, proposal.leaving, candidate.labels[0]])
    entering, leaving, slowest = problem.terms[labels]
    change = fixed.subtract(fixed.Fixed(*entering[:2]), fixed.Fixed(*leaving[:2]))
    score = fixed.add(fixed.Fixed(*position.worth[:2]), change)
    worth = jnp.stack([*score, *fixed.add(score, fixed.Fixed(*slowest[2:]))])
    energy, old_energy = fixed.Fixed(*worth[2:]), fixed.Fixed(*position.worth[2:])
    gain = fixed.decode(fixed.subtract(energy, old_energy), problem.unit)
    cooling = problem.coldness * jnp.log(position.step.astype(jnp.float32) + 1)
    worse_but_taken = open_unit(bits[-1]) <= jnp.exp(rounded(gain * cooling))
    accepted = inspected & (fixed.at_least(energy, old_energy) | worse_but_taken)
    vertex, worth = jax.tree.map(
        partial(jnp.where, accepted), (candidate, worth), (position.vertex, position.worth)
    )
    better = ~fixed.at_least(fixed.Fixed(*position.best_energy), fixed.Fixed(*worth[2:]))
    return Position(
        position.step + inspected.astype(jnp.int32),
        vertex,
        worth,
        jnp.where(better, vertex.labels, position.best_labels),
        jnp.where(better, worth[2:], position.best_energy),
    )


def walk(
    key: jax.Array, problem: Problem, start: Vertex, propose: Propose, steps: int, traced: bool
) -> tuple[jax.Array, jax.Array | None]:
    """The best labels of a walk of `steps` steps, int32 [m], and its energies, [steps + 1], if traced.

    A proposal that has to be drawn again costs its own run one turn and makes no other run of a batch wait: a
    run counts its own steps, and the loop ends when the last run has made all of its own. So the number of
    turns is that of the slowest run, not the sum over the steps of the slowest at each.
    """
    position = start_at(problem, start)
    trace = jnp.full(steps + 1, energy_of(problem, position)) if traced else None
    m, size = start.labels.shape[0], problem.lists.size
    if isinstance(size, int) and size == m:
        return start.labels, trace
    if not isinstance(size, int):
        # Where nobody is left to swap in, no draw is ever valid: all steps count as made.
        position = position._replace(step=jnp.where(size > m, 1, steps + 1).astype(jnp.int32))

    def turn(carry: tuple[Position, jax.Array | None], bits: jax.Array) -> tuple[tuple, None]:
        position, trace = carry
        after = transition(problem, position, bits, propose, steps)
        if trace is not None:
            made = jnp.where(after.step > position.step, position.step, steps + 1)
            trace = trace.at[made].set(energy_of(problem, after), mode="drop")
        return (after, trace), None

    def block(carry: tuple) -> tuple:
        number, position, trace = carry
        bits = jax.random.bits(jax.random.fold_in(key, number), (_BLOCK, PROPOSAL_WORDS + 1))

        def turns(unroll: int, *carry: Any) -> tuple:
            return jax.lax.scan(turn, carry[:2], carry[2], unroll=unroll)[0]

        position, trace = jax.lax.platform_dependent(
            position, trace, bits, cpu=partial(turns, 1), default=partial(turns, _UNROLL)
        )
        return number + 1, position, trace

    _, position, trace = jax.lax.while_loop(
        lambda c: c[1].step <= steps, block, (jnp.int32(0), position, trace)
    )
    return position.best_labels, trace
