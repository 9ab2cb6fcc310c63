"""Privacy mechanisms: the change of a client's update before its release, and the leakage ε of a release."""

from typing import Annotated

import jax
import jax.numpy as jnp
import numpy as np

from pausejax import parts
from pausejax.parts import Parameter
from pausejax.privacy import budget
from pausejax.privacy.gaussian import gaussian_epsilon
from pausejax.privacy.mechanism import Clip, Leakage, Mechanism, clip_l2, privatize
from pausejax.privacy.noise import NoiseGenerator

Number = jax.Array | float

PROTECTED = {"coordinate": "per coordinate", "vector": "per update"}
"""Unit whose leakage ε of `laplace` bounds, by the value of `clip`."""

ClipNorm = Annotated[
    Number, Parameter(help="Gaussian mechanisms: L2 norm to which an update is clipped", low=0, low_open=True)
]
NoiseMultiplier = Annotated[
    Number,
    Parameter(
        help="Gaussian mechanisms: standard deviation of the noise divided by clip_norm", low=0, low_open=True
    ),
]
Delta = Annotated[
    Number,
    Parameter(
        help="Gaussian mechanisms: δ of (ε, δ)-privacy",
        low=0,
        high=1,
        low_open=True,
        high_open=True,
        symbol="δ",
    ),
]


@parts.mechanism
def laplace(
    *,
    privacy_budget: Annotated[
        Number,
        Parameter(
            help="ε̄, limit that a client's leakage approaches",
            low=0,
            low_open=True,
            aliases=("eps_bar",),
            symbol="ε̄",
        ),
    ] = 40.0,
    budget_decay: Number,
    sensitivity: Annotated[
        Number,
        Parameter(
            help="Δf, twice the clipping bound", low=0, low_open=True, aliases=("delta_f",), symbol="Δf"
        ),
    ] = 0.012,
    clip: Annotated[
        Clip, Parameter(help="what is clipped: each coordinate, or the L1 norm of the update")
    ] = "coordinate",
    noise_generator: Annotated[
        NoiseGenerator,
        Parameter(
            help="random generator of the noise: JAX's threefry, or a hash of counters, three times as fast",
        ),
    ] = "threefry",
) -> Mechanism:
    """Clips and adds Laplace noise whose ε_i decreases with each release, (5) to (7) of the PAUSE paper."""

    def release(key: jax.Array, upload: jax.Array, number: jax.Array) -> jax.Array:
        epsilon = budget.epsilon_at(number, privacy_budget, budget_decay)
        return privatize(key, upload, epsilon, sensitivity, clip, noise_generator)

    def leakage(releases: np.ndarray, num_parameters: int) -> Leakage:
        spent = budget.leakage(jnp.asarray(releases), privacy_budget, budget_decay)
        whole = budget.update_leakage(spent, num_parameters, clip)
        return Leakage(np.asarray(spent), np.asarray(whole))

    return Mechanism(release, leakage, protects=PROTECTED[clip])


@parts.mechanism
def none() -> Mechanism:
    """Sends updates as they are; the leakage is infinite. `private = false` means the same."""

    def leakage(releases: np.ndarray, num_parameters: int) -> Leakage:
        spent = np.where(releases > 0, np.float32(np.inf), np.float32(0))
        return Leakage(spent, spent)

    return Mechanism(lambda key, upload, number: upload, leakage)


@parts.mechanism
def gaussian(
    *, clip_norm: ClipNorm = 1.0, noise_multiplier: NoiseMultiplier = 1.0, delta: Delta = 1e-5
) -> Mechanism:
    """Clips each client's update in L2 and adds Gaussian noise to it: local (ε, δ)-privacy.

    Any two clipped updates differ by at most twice `clip_norm`, so ε is computed with half the multiplier.
    """

    def release(key: jax.Array, upload: jax.Array, number: jax.Array) -> jax.Array:
        noise = jax.random.normal(key, upload.shape, jnp.float32)
        return clip_l2(upload, clip_norm) + noise * (noise_multiplier * clip_norm)

    def leakage(releases: np.ndarray, num_parameters: int) -> Leakage:
        spent = gaussian_epsilon(releases, np.asarray(noise_multiplier) / 2, np.asarray(delta))
        return Leakage(spent, spent)

    return Mechanism(release, leakage)


@parts.mechanism
def central_gaussian(
    *,
    clients_per_round: int,
    clip_norm: ClipNorm = 1.0,
    noise_multiplier: NoiseMultiplier = 1.0,
    delta: Delta = 1e-5,
) -> Mechanism:
    """Adds noise on a trusted server to the mean of clipped updates: DP-FedAvg (McMahan et al. 2018).

    If a client's update is replaced by 0, the mean changes by at most `clip_norm` times the largest weight.
    Cohorts and weights count as public. If n < m updates arrive, the noisy mean is multiplied by n/m, so its
    noise does not grow. Only aggregated updates spend privacy. ε includes no amplification by sampling,
    because policies do not sample cohorts at random.
    """

    def release(key: jax.Array, upload: jax.Array, number: jax.Array) -> jax.Array:
        return clip_l2(upload, clip_norm)

    def server(key: jax.Array, mean: jax.Array, weight: jax.Array) -> jax.Array:
        noise = jax.random.normal(key, mean.shape, jnp.float32)
        arrived = jnp.sum(weight > 0).astype(jnp.float32)
        share = jnp.minimum(arrived / clients_per_round, 1.0)
        return share * (mean + noise * (noise_multiplier * clip_norm * jnp.max(weight)))

    def leakage(releases: np.ndarray, num_parameters: int) -> Leakage:
        spent = gaussian_epsilon(releases, np.asarray(noise_multiplier), np.asarray(delta))
        return Leakage(spent, spent)

    return Mechanism(release, leakage, server)
