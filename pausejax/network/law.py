"""The interface of latency laws: the draw of a round, and the expectations that the oracle knows."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

_DRAWS = 2**14
_DRAWS_AT_ONCE = 64

Function = Callable[[jax.Array], jax.Array]


class Law(NamedTuple):
    """Law of the clients' latencies in a round, in seconds; all functions are pure and jittable.

    A law is a deterministic transform of draws that depend on the key alone. So runs that differ in a
    parameter of the law use the same draws (common random numbers).
    """

    sample: Callable[[jax.Array], jax.Array]
    """Function from a key, which is consumed, to every client's latency in a round, float32 [K], seconds."""
    expectation: Callable[[Function], jax.Array] | None = None
    """Function from f to E[f(τ_k)], float32 [K], where f is applied to each element of latencies [..., K].

    If None, the expectation is the mean over 16,384 draws with fixed keys. The error of this mean is about 1
    % of the standard deviation of f(τ).
    """
    cdf: Callable[[jax.Array], jax.Array] | None = None
    """Function from latencies x [n, 1], seconds, to P(τ_k <= x), float32 [n, K], for clients with independent
    draws. None if the function is unknown or the draws are not independent. Only the expected regret needs
    it."""


def check_numbers(
    name: str, numbers: jax.Array, allowed: Callable[[np.ndarray], np.ndarray], what: str
) -> None:
    """Checks the numbers of a file before anything is compiled. Traced numbers are not checked.

    Args:
      name: the parameter that names the file.
      numbers: the numbers in the file.
      allowed: function from numbers to whether each of them is allowed.
      what: the allowed numbers, in words.

    Raises:
      ValueError: a number is not allowed.
    """
    if isinstance(numbers, jax.core.Tracer):
        return
    given = np.asarray(numbers)
    wrong = given[~allowed(given)]
    if wrong.size:
        raise ValueError(f"{name}: must hold {what}, but holds {wrong[0]:g}")


def floored(law: Law, min_latency: jax.Array | float) -> Law:
    """Returns the law of latencies that are raised to at least τ_min, so that τ_min / τ is in (0, 1]."""
    raised: dict[str, Any] = {"sample": lambda key: jnp.maximum(min_latency, law.sample(key))}
    if (cdf := law.cdf) is not None:
        raised["cdf"] = lambda x: jnp.where(x < min_latency, 0.0, cdf(x))
    if (mean := law.expectation) is not None:
        raised["expectation"] = lambda function: mean(lambda x: function(jnp.maximum(min_latency, x)))
    return law._replace(**raised)


def expected_latency(law: Law) -> jax.Array:
    """Returns E[τ_k], float32 [K], seconds."""
    return expectation(law, lambda latency: latency)


def expected_reward(law: Law, min_latency: jax.Array | float) -> jax.Array:
    """Returns μ_k = E[τ_min / τ_k], float32 [K], by the law alone, without the latencies that runs draw."""
    return expectation(law, lambda latency: min_latency / latency)


def expectation(law: Law, function: Function) -> jax.Array:
    """Returns E[function(τ_k)], float32 [K].

    If the law defines `expectation`, that function computes the value. Else it is the mean over 16,384
    draws with fixed keys.
    """
    if law.expectation is not None:
        return law.expectation(function)
    keys = jax.random.split(jax.random.key(0), (_DRAWS // _DRAWS_AT_ONCE, _DRAWS_AT_ONCE))

    def mean_of_some(keys: jax.Array) -> jax.Array:
        return jnp.mean(function(jax.vmap(law.sample)(keys)), axis=0)

    return jnp.mean(jax.lax.map(mean_of_some, keys), axis=0)
