"""Simulates the Markov chain of Algorithm 2 over client sets: a Metropolis step, and a walk of many steps."""

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from pausejax.rounding import rounded
from pausejax.selection import _fixed as fixed
from pausejax.selection._neighbours import PROPOSAL_WORDS, Lists, Propose, Vertex, swap
from pausejax.selection._order import open_unit

_BLOCK = 16
"""The number of proposals between two checks whether every run has finished."""
_UNROLL = 4
"""Number of iterations in one body of the loop.

On a CPU the number is 1, because unrolling takes three times as long on a CPU.
"""


class Problem(NamedTuple):
    """Instance of (14) in the form that the walk needs, with terms in fixed point (`_fixed.py`)."""

    lists: Lists
    terms: jax.Array
    """int32 [K, 4] by label: score, (α g_k + γ p_k) / m, and ucb, finite and ascending; each is two int32
    words."""
    unit: jax.Array
    """int32 scalar: terms are in units of 2^unit."""
    coldness: jax.Array
    """float32 scalar, κ / C: the inverse temperature of step j is coldness * log(j + 1)."""


class Position(NamedTuple):
    """Position of the chain, and the best set that it has visited. Sums and energies are in fixed point."""

    step: jax.Array
    """int32 scalar, j: the number of the next step, from 1."""
    vertex: Vertex
    """The current set."""
    worth: jax.Array
    """int32 [4]: the sum of the members' scores, and E(V), (18).

    Sum and energy are in one array, because XLA:CPU would recompute separate arrays.
    """
    best_labels: jax.Array
    """int32 [m], the labels of the best visited set."""
    best_energy: jax.Array
    """int32 [2], the energy of the best visited set."""


def make_problem(
    lists: Lists, ucb: jax.Array, score: jax.Array, m: int, coldness: jax.Array | float
) -> Problem:
    """Returns the problem of choosing m clients.

    Args:
      lists: the sorted lists of the clients.
      ucb: float32 [K] by client, finite.
      score: float32 [K] by client, finite.
      m: the number of clients to choose.
      coldness: float32 scalar, κ / C.
    """
    unit = fixed.unit((ucb, 1), (score, m))
    terms = (*fixed.encode(score[lists.client], unit), *fixed.encode(ucb[lists.client], unit))
    return Problem(lists, jnp.stack(terms, axis=1), unit, jnp.asarray(coldness, jnp.float32))


def start_at(problem: Problem, vertex: Vertex, step: int | jax.Array = 1) -> Position:
    """Returns the position of a walk that has visited only `vertex`, before step number `step`."""
    terms = problem.terms[vertex.labels]
    score = fixed.total(fixed.Fixed(terms[:, 0], terms[:, 1]))
    energy = fixed.add(score, fixed.Fixed(terms[0, 2], terms[0, 3]))
    worth = jnp.stack([*score, *energy])
    return Position(jnp.asarray(step, jnp.int32), vertex, worth, vertex.labels, worth[2:])


def energy_of(problem: Problem, position: Position) -> jax.Array:
    """Returns E(V) of the current set, float32 scalar."""
    return fixed.decode(fixed.Fixed(*position.worth[2:]), problem.unit)


def transition(
    problem: Problem, position: Position, bits: jax.Array, propose: Propose, steps: int
) -> Position:
    """Draws a neighbour. If the draw is valid and steps are left, makes one step of the chain.

    Args:
      problem: the problem.
      position: the position before the draw.
      bits: uint32 [PROPOSAL_WORDS + 1], random bits.
      propose: the function that draws a neighbour.
      steps: J, the number of steps of the walk.

    Returns:
      The position after the draw.
    """
    proposal = propose(problem.lists, position.vertex, bits[:-1])
    inspected = proposal.valid & (position.step <= steps)
    candidate = swap(problem.lists, position.vertex, proposal.leaving, proposal.entering)
    # The three rows are read by one gather: on a CPU a gather costs as much as the rest of the step.
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
    """Walks `steps` steps and returns the labels of the best visited set, int32 [m], and a trace of energies.

    The trace is float32 [steps + 1] if `traced`, else None.

    Each run of a batch counts its own steps, and the loop ends when the last run has made all its steps. An
    invalid proposal costs one iteration of its run, and other runs do not wait. So the number of iterations
    is that of the slowest run.
    """
    position = start_at(problem, start)
    trace = jnp.full(steps + 1, energy_of(problem, position)) if traced else None
    m, size = start.labels.shape[0], problem.lists.size
    if isinstance(size, int) and size == m:
        return start.labels, trace
    if not isinstance(size, int):
        # If there is no outsider to swap in, no draw is ever valid, so all steps count as made.
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
