"""Latency models: what one round costs each client, in seconds.

Every law is a deterministic transform of one standard draw per client, so that runs which differ in a latency
parameter still meet the same network (common random numbers).
"""

from collections.abc import Callable
from typing import Literal, NamedTuple, get_args

import jax
import jax.numpy as jnp
import numpy as np

from pausejax.rounding import rounded, tree_sum

Law = Literal["two_speed", "lognormal", "shifted_exponential", "trace"]
LAWS: tuple[str, ...] = get_args(Law)

_QUADRATURE_NODES = 256
_REACH = 9.0
"""Standard deviations beyond which the normal density is taken as zero."""


class Network(NamedTuple):
    """The parameters of one latency law; a pytree whose leaves may be traced."""

    min_latency: jax.Array
    """float32 scalar, τ_min > 0, seconds: no latency is below it."""
    mean: jax.Array
    """float32 [K], seconds. The mean of the law before it is floored at τ_min."""
    deviation: jax.Array
    """float32 scalar: standard deviation in seconds (two_speed) or of the logarithm (lognormal)."""
    trace: jax.Array
    """float32 [T, K] measured latencies in seconds; [0, K] for the parametric laws."""


def two_speed_means(
    num_clients: int, min_latency: float, fast_latency: float, slow_latency: float, slow_range: float
) -> jax.Array:
    """Mean latencies, [K], of the paper's two groups: client 0 is the fastest, client K - 1 the slowest.

    The fast half lies evenly in (τ_min, fast_latency], the slow half in
    (slow_latency, slow_latency + slow_range].
    """
    fast = num_clients // 2
    rank = np.arange(1, num_clients + 1, dtype=np.float32)
    in_fast = rank / np.float32(max(fast, 1))
    in_slow = (rank - fast) / np.float32(num_clients - fast)
    fast_mean = min_latency + rounded((fast_latency - min_latency) * in_fast)
    slow_mean = slow_latency + rounded(slow_range * in_slow)
    return jnp.where(np.arange(num_clients) < fast, fast_mean, slow_mean).astype(jnp.float32)


def make_network(
    num_clients: int,
    *,
    min_latency: float = 0.05,
    fast_latency: float = 0.2,
    slow_latency: float = 0.7,
    slow_range: float = 0.2,
    latency_deviation: float = 0.05,
    trace: jax.Array | None = None,
) -> Network:
    """Builds the parameters of any law. All numbers are seconds and may be traced.

    Args:
      num_clients: K.
      min_latency: τ_min.
      fast_latency: largest mean in the fast half.
      slow_latency: the slow half's means start above it.
      slow_range: the width of the slow half's means.
      latency_deviation: the standard deviation (of the logarithm for `lognormal`; unused by
        `shifted_exponential` and `trace`).
      trace: [T, K] latencies, for the law `trace` alone.
    """
    if trace is None:
        trace = jnp.zeros((0, num_clients), jnp.float32)
    return Network(
        jnp.asarray(min_latency, jnp.float32),
        two_speed_means(num_clients, min_latency, fast_latency, slow_latency, slow_range),
        jnp.asarray(latency_deviation, jnp.float32),
        jnp.asarray(trace, jnp.float32),
    )


def sample(law: Law, key: jax.Array, network: Network) -> jax.Array:
    """Draws one round's latency of every client, float32 [K], seconds."""
    floor, mean, deviation, trace = network
    shape = mean.shape
    if law == "two_speed":
        return jnp.maximum(floor, mean + rounded(deviation * jax.random.normal(key, shape)))
    if law == "lognormal":
        log_factor = rounded(deviation * jax.random.normal(key, shape)) - rounded(deviation**2 / 2)
        return jnp.maximum(floor, floor + rounded((mean - floor) * jnp.exp(log_factor)))
    if law == "shifted_exponential":
        return floor + rounded(jnp.maximum(mean - floor, 0) * jax.random.exponential(key, shape))
    if law == "trace":
        row = jax.random.randint(key, (), 0, trace.shape[0])
        return jnp.maximum(floor, trace[row])
    raise ValueError(f"law: unknown latency law {law!r}; allowed: {', '.join(LAWS)}")


def expected_latency(law: Law, network: Network) -> jax.Array:
    """E[τ_k], float32 [K], seconds, of the floored law."""
    return _expectation(law, network, lambda latency: latency)


def expected_reward(law: Law, network: Network) -> jax.Array:
    """μ_k = E[τ_min / τ_k], float32 [K], by quadrature; never from the draws of a run."""
    return _expectation(law, network, lambda latency: network.min_latency / latency)


def _expectation(law: Law, network: Network, function: Callable[[jax.Array], jax.Array]) -> jax.Array:
    """E[function(τ_k)], [K], by Gauss-Legendre quadrature over the standard draw behind the law."""
    floor, mean, deviation, trace = network
    nodes, weights = (jnp.asarray(a, jnp.float32)[:, None] for a in _legendre())
    if law == "two_speed":
        spread = jnp.maximum(deviation, 1e-6)
        start = jnp.clip((floor - mean) / spread, -_REACH, _REACH)[None]
        half = (_REACH - start) / 2
        draw = start + rounded(half * (nodes + 1))
        value = function(jnp.maximum(floor, mean[None] + rounded(spread * draw)))
        above = tree_sum(rounded(weights * half * value * _normal_density(draw)))
        at_floor = jax.scipy.stats.norm.cdf(start[0]) * function(jnp.broadcast_to(floor, mean.shape))
        return above + rounded(at_floor)
    if law == "lognormal":
        draw = _REACH * nodes
        factor = jnp.exp(rounded(deviation * draw) - rounded(deviation**2 / 2))
        value = function(jnp.maximum(floor, floor + rounded((mean - floor)[None] * factor)))
        return tree_sum(rounded(weights * _REACH * value * _normal_density(draw)))
    if law == "shifted_exponential":
        # Squaring the draw puts the nodes where τ_min / τ bends most.
        root = jnp.sqrt(40.0) * (nodes + 1) / 2
        value = function(floor + rounded(jnp.maximum(mean - floor, 0)[None] * root**2))
        density = 2 * root * jnp.exp(-(root**2))
        return tree_sum(rounded(weights * jnp.sqrt(10.0) * value * density))
    if law == "trace":
        return tree_sum(function(jnp.maximum(floor, trace))) / trace.shape[0]
    raise ValueError(f"law: unknown latency law {law!r}; allowed: {', '.join(LAWS)}")


def _normal_density(x: jax.Array) -> jax.Array:
    return jnp.exp(-rounded(x**2) / 2) * np.float32(1 / np.sqrt(2 * np.pi))


def _legendre() -> tuple[np.ndarray, np.ndarray]:
    return np.polynomial.legendre.leggauss(_QUADRATURE_NODES)
