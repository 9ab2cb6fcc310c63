"""Checks latency laws, availability processes and endings. The checks run when these are traced."""

from typing import Any

import jax
import jax.numpy as jnp

from pausejax.network.availability import Availability
from pausejax.network.endings import Close, Ending, Work
from pausejax.network.law import Function, Law
from pausejax.parts import Part, PartError
from pausejax.parts.check import expect_array, expect_type, types_of


def checked_law(law: Any, part: Part, num_clients: int) -> Law:
    """Returns the law with functions that check the shapes and types of their results.

    Args:
      law: the return value of the part.
      part: the part of the law.
      num_clients: K, the number of clients.

    Raises:
      PartError: `law` is not a `Law`. Its functions raise it for a result of wrong shape or type.
    """
    expect_type(part, law, Law, "pausejax.network.Law")
    expected, distribution = law.expectation, law.cdf

    def checked(what: str, made: Any, *rows: int) -> jax.Array:
        return expect_array(part, f"{what} returns", made, jnp.float32, (*rows, num_clients))

    def sample(key: jax.Array) -> jax.Array:
        with part.blamed("sample"):
            return checked("sample", law.sample(key))

    def expectation(function: Function) -> jax.Array:
        assert expected is not None
        with part.blamed("expectation"):
            return checked("expectation", expected(function))

    def cdf(latency: jax.Array) -> jax.Array:
        assert distribution is not None
        with part.blamed("cdf"):
            return checked("cdf", distribution(latency), len(latency))

    return Law(sample, None if expected is None else expectation, None if distribution is None else cdf)


def checked_availability(process: Any, part: Part, num_clients: int) -> Availability:
    """Returns the process with functions that check the shapes and types of their results.

    Arguments and errors are those of `checked_law`, for a process in place of a law.
    """
    expect_type(part, process, Availability, "pausejax.network.Availability")

    def init(key: jax.Array) -> Any:
        with part.blamed("init"):
            return jax.tree.map(jnp.asarray, process.init(key))

    def step(key: jax.Array, state: Any, round: jax.Array) -> tuple[Any, jax.Array]:
        with part.blamed("step"):
            after, available = process.step(key, state, round)
        if types_of(after) != types_of(state):
            raise PartError(f"{part.where}: step must return a state of the same shapes and types as before")
        return after, expect_array(part, "step returns", available, jnp.bool, (num_clients,))

    return process._replace(init=init, step=step)


def checked_ending(ending: Any, part: Part) -> Ending:
    """Returns the ending with a function that checks the shapes and types of its result.

    Raises:
      PartError: `ending` is not an `Ending`. Its function raises it for a result of wrong shape or type.
    """
    expect_type(part, ending, Ending, "pausejax.network.Ending")
    chooses, waiting = ending.chooses, ending.waiting
    if not isinstance(waiting, int) or waiting < 0:
        raise PartError(f"{part.where}: waiting must be an integer >= 0, not {waiting!r}")
    if chooses is not None and (not isinstance(chooses, int) or chooses < 1):
        raise PartError(f"{part.where}: chooses must be None or an integer >= 1, not {chooses!r}")

    def close(work: Work) -> Close:
        with part.blamed("close"):
            made = ending.close(work)
        if not isinstance(made, Close):
            raise PartError(
                f"{part.where}: close must return a pausejax.network.Close, not {type(made).__name__}"
            )
        there = work.client >= 0
        duration = expect_array(part, "duration is", made.duration, jnp.float32, ())
        counts = expect_array(part, "counts is", made.counts, jnp.bool, there.shape)
        done, factor = there, made.factor
        if made.done is not None:
            done = expect_array(part, "done is", made.done, jnp.bool, there.shape)
        if factor is not None:
            factor = expect_array(part, "factor is", factor, jnp.float32, there.shape)
        # The update of a client that is still at work or fails never counts, whatever the ending returns.
        counts &= there & done & ~work.fails
        if part.outside:
            # A duration of NaN ends the study with an error that names the ending.
            duration = jnp.where(_is_valid(ending, work, counts, done, factor), duration, jnp.nan)
        return Close(duration, counts, done, factor)

    return ending._replace(close=close)


def _is_valid(
    ending: Ending, work: Work, counts: jax.Array, done: jax.Array, factor: jax.Array | None
) -> jax.Array:
    """Returns whether the values of a `Close` agree with each other and with the ending, bool scalar."""
    there = work.client >= 0
    valid = jnp.bool(True)
    if not ending.waiting:
        valid &= jnp.all(done | ~there)
    if ending.waits_for_all:
        valid &= jnp.all(counts | ~there | work.fails)
    if factor is not None:
        valid &= jnp.all(((factor >= 0) & (factor <= 1)) | ~counts)
    return valid
