"""Availability processes, which decide which clients can be selected in a round.

The draws depend on a run's seed and the round, but not on the policy. Runs with one seed use common random
numbers: a client that is available at some probability is also available at every larger probability.
"""

from collections.abc import Callable
from typing import Annotated, Any, NamedTuple

import jax
import jax.numpy as jnp

from pausejax import parts
from pausejax.network.law import check_numbers
from pausejax.parts import File, Parameter

Number = jax.Array | float


class Availability(NamedTuple):
    """Availability process; its functions are pure and jittable."""

    init: Callable[[jax.Array], Any]
    """Function from a key to the state before the first round, a pytree of fixed shapes."""
    step: Callable[[jax.Array, Any, jax.Array], tuple[Any, jax.Array]]
    """Function from a key, the state and the round (int32, the first is 1) to the next state and the
    available clients, bool [K]."""
    always: bool = False
    """Whether all clients are available in every round, so that a program need not call `step`."""


def _stateless(available: Callable[[jax.Array, jax.Array], jax.Array]) -> Availability:
    """Returns a process without a state. `available` is a function of a round's key and number alone."""
    return Availability(lambda key: (), lambda key, state, round: (state, available(key, round)))


@parts.availability
def always(*, num_clients: int) -> Availability:
    """Every client is available in every round."""
    everyone = _stateless(lambda key, round: jnp.ones(num_clients, bool))
    return everyone._replace(always=True)


@parts.availability
def bernoulli(
    *,
    num_clients: int,
    availability_probability: Annotated[
        Number, Parameter(help="bernoulli: probability that a client is available in a round", low=0, high=1)
    ] = 0.9,
) -> Availability:
    """Each client is available with the same probability, independently in each round."""
    return _stateless(lambda key, round: jax.random.uniform(key, (num_clients,)) < availability_probability)


@parts.availability
def markov(
    *,
    num_clients: int,
    departure_probability: Annotated[
        Number,
        Parameter(
            help="markov: probability that an available client is unavailable in the next round",
            low=0,
            high=1,
        ),
    ] = 0.1,
    return_probability: Annotated[
        Number,
        Parameter(
            help="markov: probability that an unavailable client is available in the next round",
            low=0,
            high=1,
        ),
    ] = 0.5,
) -> Availability:
    """Each client is available or not by an independent Markov chain, which starts in its stationary law.

    If both probabilities are 0, every client is always available.
    """

    def init(key: jax.Array) -> jax.Array:
        leaving = jnp.asarray(departure_probability + return_probability, jnp.float32)
        on = jnp.where(leaving > 0, return_probability / jnp.where(leaving > 0, leaving, 1.0), 1.0)
        return jax.random.uniform(key, (num_clients,)) < on

    def step(key: jax.Array, state: jax.Array, round: jax.Array) -> tuple[jax.Array, jax.Array]:
        on = jnp.where(state, 1 - jnp.asarray(departure_probability, jnp.float32), return_probability)
        state = jax.random.uniform(key, (num_clients,)) < on
        return state, state

    return Availability(init, step)


@parts.availability
def availability_trace(
    *,
    num_clients: int,
    availability_file: Annotated[
        File | jax.Array, Parameter(help="availability_trace: CSV or .npy file [T, K]; 1: available, 0: not")
    ] = File(""),  # noqa: B008
) -> Availability:
    """Replays measured availability: round t uses row (t - 1) mod T of a file.

    Args:
      num_clients: K, the number of clients.
      availability_file: float32 [T, K], 1 for available clients, 0 for other clients.

    Raises:
      ValueError: the file has no rows, not exactly K columns, or numbers other than 0 and 1.
    """
    if isinstance(availability_file, str) or availability_file.shape[1:] != (num_clients,):
        seen = "no numbers" if isinstance(availability_file, str) else f"shape {availability_file.shape}"
        raise ValueError(f"availability_file: must have num_clients = {num_clients} columns, but has {seen}")
    rows = availability_file.shape[0]
    if not rows:
        raise ValueError("availability_file: must have one row or more, but has none")
    check_numbers(
        "availability_file", availability_file, lambda given: (given == 0) | (given == 1), "only 0 and 1"
    )
    return _stateless(lambda key, round: availability_file[(round - 1) % rows] > 0)
