"""What a latency law is: a draw of one round, and the expectations that a genie knows."""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

_DRAWS = 2**14
_DRAWS_AT_ONCE = 64

Function = Callable[[jax.Array], jax.Array]


class Law(NamedTuple):
    """How long one round takes each client, in seconds; all members are pure and jittable.

    A law is a deterministic transform of draws that depend on its key alone, so that runs which differ in a
    parameter of the law still meet the same network (common random numbers).
    """

    sample: Callable[[jax.Array], jax.Array]
    """Key -> float32 [K], seconds, one round's latency of every client; the key is consumed."""
    expectation: Callable[[Function], jax.Array] | None = None
    """f -> E[f(τ_k)], float32 [K], for a function f of latencies [..., K] by element; None: it is taken as
    the mean over 16,384 draws whose keys never change, off by 1 % of f(τ)'s standard deviation or so."""
    cdf: Callable[[jax.Array], jax.Array] | None = None
    """Latencies x [n, 1], seconds -> P(τ_k <= x), float32 [n, K], of clients whose draws are independent;
    None where it is not known, or they are not. Only the expected regret asks for it."""


def check_numbers(
    name: str, numbers: jax.Array, allowed: Callable[[np.ndarray], np.ndarray], what: str
) -> None:
    """Refuses what is in a file, before anything is compiled; within a program it has been looked at.

    Args:
      name: the parameter that names the file.
      numbers: what the file holds.
      allowed: which of some numbers may be there.
      what: these, in words.

    Raises:
      ValueError: another number is there.
    """
    if isinstance(numbers, jax.core.Tracer):
        return
    given = np.asarray(numbers)
    wrong = given[~allowed(given)]
    if wrong.size:
        raise ValueError(f"{name}: must hold {what}, has {wrong[0]:g}")


def floored(law: Law, min_latency: jax.Array | float) -> Law:
    """The law with no draw below τ_min, so that τ_min / τ stays within (0, 1].

    An expectation that the law brings along is taken as it is.
    """
    unfloored = law.cdf
    cdf = None if unfloored is None else lambda x: jnp.where(x < min_latency, 0.0, unfloored(x))
    return law._replace(sample=lambda key: jnp.maximum(min_latency, law.sample(key)), cdf=cdf)


def expected_latency(law: Law) -> jax.Array:
    """E[τ_k], float32 [K], seconds."""
    return expectation(law, lambda latency: latency)


def expected_reward(law: Law, min_latency: jax.Array | float) -> jax.Array:
    """μ_k = E[τ_min / τ_k], float32 [K]; never from the draws of a run."""
    return expectation(law, lambda latency: min_latency / latency)


def expectation(law: Law, function: Function) -> jax.Array:
    """E[function(τ_k)], float32 [K]: as the law has it, or the mean over a large fixed sample."""
    if law.expectation is not None:
        return law.expectation(function)
    keys = jax.random.split(jax.random.key(0), (_DRAWS // _DRAWS_AT_ONCE, _DRAWS_AT_ONCE))

    def mean_of_some(keys: jax.Array) -> jax.Array:
        return jnp.mean(function(jax.vmap(law.sample)(keys)), axis=0)

    return jnp.mean(jax.lax.map(mean_of_some, keys), axis=0)
