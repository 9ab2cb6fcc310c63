"""The latency laws that come with the package: two-speed, lognormal, shifted exponential, measured traces."""

import dataclasses
import functools
from typing import Annotated

import jax
import jax.numpy as jnp
import numpy as np

from pausejax import parts
from pausejax.network.law import Function, Law, check_numbers
from pausejax.parts import File, Parameter
from pausejax.rounding import rounded, tree_sum

_QUADRATURE_NODES = 256
_REACH = 9.0
"""Number of standard deviations beyond which the normal density is replaced by zero."""

Number = jax.Array | float
Deviation = Annotated[
    Number,
    Parameter(
        help=(
            "standard deviation of a latency, seconds; under `lognormal`: standard deviation of the natural "
            "logarithm of a latency's excess over τ_min, no unit"
        ),
        low=0,
    ),
]
DEVIATION = 0.05


def _seconds(help: str, *, low_open: bool = True) -> Parameter:
    return Parameter(help=help, low=0, low_open=low_open, units="s")


@dataclasses.dataclass(frozen=True)
class Speeds:
    """Mean latencies of the paper's two groups of clients, seconds; each number may be traced."""

    fast_latency: Annotated[Number, _seconds("largest mean latency of a fast client, seconds")] = 0.2
    slow_latency: Annotated[Number, _seconds("lower bound of a slow client's mean latency, seconds")] = 0.7
    slow_range: Annotated[
        Number, _seconds("width of the interval of the slow clients' mean latencies, seconds", low_open=False)
    ] = 0.2

    def problem(self, min_latency: float) -> tuple[str, float, str] | None:
        """Returns the first parameter that does not fit the other parameters, its value and what is allowed.

        Returns None if all parameters fit.
        """
        if not min_latency <= self.fast_latency:
            return "min_latency", min_latency, f"must be <= fast_latency = {self.fast_latency}"
        if not self.fast_latency <= self.slow_latency:
            return "slow_latency", float(self.slow_latency), f"must be >= fast_latency = {self.fast_latency}"
        return None

    def means(self, num_clients: int, min_latency: Number) -> jax.Array:
        """Returns the mean latencies, float32 [K], seconds; client 0 is the fastest, K - 1 the slowest.

        The means of the fast half are spread evenly over (τ_min, fast_latency], those of the slow half over
        (slow_latency, slow_latency + slow_range]. These are the means before `two_speed` raises draws below
        τ_min to τ_min.
        """
        fast = num_clients // 2
        rank = np.arange(1, num_clients + 1, dtype=np.float32)
        in_fast = rank / np.float32(max(fast, 1))
        in_slow = (rank - np.float32(fast)) / np.float32(num_clients - fast)
        fast_mean = min_latency + rounded((self.fast_latency - min_latency) * in_fast)
        slow_mean = self.slow_latency + rounded(self.slow_range * in_slow)
        return jnp.where(np.arange(num_clients) < fast, fast_mean, slow_mean).astype(jnp.float32)


@parts.latency
def two_speed(
    *,
    num_clients: int,
    min_latency: Number,
    speeds: Speeds = Speeds(),
    latency_deviation: Deviation = DEVIATION,
) -> Law:
    """Normal latencies around the means of a fast and a slow group, at least τ_min, as in the paper's code.

    Args:
      num_clients: K, the number of clients.
      min_latency: τ_min, seconds.
      speeds: the mean latencies, seconds.
      latency_deviation: the standard deviation, seconds.
    """
    floor, mean = _float32(min_latency), speeds.means(num_clients, min_latency)
    deviation = _float32(latency_deviation)

    def sample(key: jax.Array) -> jax.Array:
        return jnp.maximum(floor, mean + rounded(deviation * jax.random.normal(key, mean.shape)))

    def expectation(function: Function) -> jax.Array:
        nodes, weights = _legendre()
        spread = jnp.maximum(deviation, 1e-6)
        start = jnp.clip((floor - mean) / spread, -_REACH, _REACH)[None]
        half = (_REACH - start) / 2
        draw = start + rounded(half * (nodes + 1))
        value = function(jnp.maximum(floor, mean[None] + rounded(spread * draw)))
        above = tree_sum(rounded(weights * half * value * _normal_density(draw)))
        at_floor = jax.scipy.stats.norm.cdf(start[0]) * function(jnp.broadcast_to(floor, mean.shape))
        return above + rounded(at_floor)

    def cdf(latency: jax.Array) -> jax.Array:
        return jax.scipy.stats.norm.cdf((latency - mean[None]) / jnp.maximum(deviation, 1e-6))

    return Law(sample, expectation, cdf)


@parts.latency
def lognormal(
    *,
    num_clients: int,
    min_latency: Number,
    speeds: Speeds = Speeds(),
    latency_deviation: Deviation = DEVIATION,
) -> Law:
    """τ_min plus a lognormal excess with the means of `two_speed`.

    `latency_deviation` is the standard deviation of the logarithm of the excess, without a unit. The other
    arguments are those of `two_speed`.
    """
    floor, mean = _float32(min_latency), speeds.means(num_clients, min_latency)
    deviation = _float32(latency_deviation)

    def sample(key: jax.Array) -> jax.Array:
        log_factor = rounded(deviation * jax.random.normal(key, mean.shape)) - rounded(deviation**2 / 2)
        return jnp.maximum(floor, floor + rounded((mean - floor) * jnp.exp(log_factor)))

    def expectation(function: Function) -> jax.Array:
        nodes, weights = _legendre()
        draw = _REACH * nodes
        factor = jnp.exp(rounded(deviation * draw) - rounded(deviation**2 / 2))
        value = function(jnp.maximum(floor, floor + rounded((mean - floor)[None] * factor)))
        return tree_sum(rounded(weights * _REACH * value * _normal_density(draw)))

    def cdf(latency: jax.Array) -> jax.Array:
        excess = jnp.maximum(latency - floor, 0) / jnp.maximum(mean - floor, 1e-9)[None]
        log_factor = jnp.log(excess) + deviation**2 / 2
        return jax.scipy.stats.norm.cdf(log_factor / jnp.maximum(deviation, 1e-6))

    return Law(sample, expectation, cdf)


@parts.latency
def shifted_exponential(
    *,
    num_clients: int,
    min_latency: Number,
    speeds: Speeds = Speeds(),
) -> Law:
    """τ_min plus an exponential excess with the means of `two_speed`.

    The arguments are those of `two_speed`.
    """
    floor, mean = _float32(min_latency), speeds.means(num_clients, min_latency)
    excess = jnp.maximum(mean - floor, 0)

    def sample(key: jax.Array) -> jax.Array:
        return floor + rounded(excess * jax.random.exponential(key, mean.shape))

    def expectation(function: Function) -> jax.Array:
        nodes, weights = _legendre()
        # The square of the draw puts most nodes where the curvature of τ_min / τ is largest.
        root = jnp.sqrt(40.0) * (nodes + 1) / 2
        value = function(floor + rounded(excess[None] * root**2))
        density = 2 * root * jnp.exp(-(root**2))
        return tree_sum(rounded(weights * jnp.sqrt(10.0) * value * density))

    def cdf(latency: jax.Array) -> jax.Array:
        return -jnp.expm1(-jnp.maximum(latency - floor, 0) / jnp.maximum(excess, 1e-9)[None])

    return Law(sample, expectation, cdf)


@parts.latency
def trace(
    *,
    num_clients: int,
    min_latency: Number,
    trace_file: Annotated[
        File | jax.Array,
        Parameter(help="trace: CSV or .npy file of latencies [T, K], seconds"),
    ] = File(""),  # noqa: B008
) -> Law:
    """Draws one row of a file of measured latencies in each round; latencies below τ_min become τ_min.

    Args:
      num_clients: K, the number of clients.
      min_latency: τ_min, seconds.
      trace_file: float32 [T, K], seconds.

    Raises:
      ValueError: the file has no rows, not exactly K columns, or latencies below 0.
    """
    if isinstance(trace_file, str) or trace_file.ndim != 2 or trace_file.shape[1] != num_clients:
        seen = "no numbers" if isinstance(trace_file, str) else f"shape {trace_file.shape}"
        raise ValueError(f"trace_file: must have num_clients = {num_clients} columns, but has {seen}")
    if not trace_file.shape[0]:
        raise ValueError("trace_file: must have one row or more, but has none")
    check_numbers("trace_file", trace_file, lambda seconds: seconds >= 0, "latencies >= 0")
    measured = jnp.maximum(_float32(min_latency), trace_file)

    def sample(key: jax.Array) -> jax.Array:
        return measured[jax.random.randint(key, (), 0, measured.shape[0])]

    return Law(sample, lambda function: tree_sum(function(measured)) / measured.shape[0])


def _float32(number: Number) -> jax.Array:
    return jnp.asarray(number, jnp.float32)


def _normal_density(x: jax.Array) -> jax.Array:
    return jnp.exp(-rounded(x**2) / 2) * np.float32(1 / np.sqrt(2 * np.pi))


def _legendre() -> tuple[jax.Array, jax.Array]:
    """Returns the nodes and weights of Gauss-Legendre quadrature on [-1, 1], float32 [256, 1] each."""
    nodes, weights = _legendre_on_host()
    return jnp.asarray(nodes, jnp.float32)[:, None], jnp.asarray(weights, jnp.float32)[:, None]


@functools.cache
def _legendre_on_host() -> tuple[np.ndarray, np.ndarray]:
    """Computes the nodes and weights of `_legendre` in float64, [256] each.

    The nodes are the zeros of P_n, found by Newton's method. The weights are 2 / ((1 - x²) P_n'(x)²).
    `numpy.polynomial.legendre.leggauss` computes eigenvalues with LAPACK instead. LAPACK's threads may wait
    half a second for each other while another process uses the cores.
    """
    n = _QUADRATURE_NODES
    x = np.cos(np.pi * (np.arange(n, 0, -1) - 0.25) / (n + 0.5))
    slope = np.ones(n)
    for _ in range(5):
        before, value = np.ones(n), x
        for degree in range(2, n + 1):
            before, value = value, ((2 * degree - 1) * x * value - (degree - 1) * before) / degree
        slope = n * (before - x * value) / (1 - x**2)
        x = x - value / slope
    return x, 2 / ((1 - x**2) * slope**2)
