"""FedDyn (Acar et al. 2021)."""

from typing import Annotated

import jax
import jax.numpy as jnp

from pausejax import parts
from pausejax.federated.algorithms.base import Algorithm, Arrivals, Local, Number, difference
from pausejax.federated.modules import Params
from pausejax.parts import Parameter


@parts.algorithm
def feddyn(
    *,
    dynamic_weight: Annotated[
        Number, Parameter(help="feddyn: weight α of the dynamic regularizer", low=0, low_open=True)
    ] = 0.01,
) -> Algorithm:
    """Adds a linear and a quadratic term to every client's loss. The loss's optimum moves to the global one.

    The algorithm follows Acar et al. 2021, with data shares p_k in place of equal shares. The client's state
    g_k estimates the gradient of the client's loss at the end of its last training. The server's state is h.
    It equals Σ p_k g_k if rounds weight their cohort by data, (2), and updates are neither clipped nor
    noised.
    """

    def init(params: Params) -> tuple[Params, Params]:
        zeros = jax.tree.map(jnp.zeros_like, params)
        return zeros, zeros

    def gradient(gradient: Params, local: Local) -> Params:
        return jax.tree.map(
            lambda g, own, w, start: g - own + dynamic_weight * (w - start),
            gradient,
            local.client,
            local.params,
            local.start,
        )

    def upload(local: Local) -> tuple[Params, Params]:
        change = difference(local)[0]
        return change, jax.tree.map(lambda own, u: own - dynamic_weight * u, local.client, change)

    def combine(mean: Params, params: Params, server: Params, arrived: Arrivals) -> tuple[Params, Params]:
        share = jnp.sum(arrived.share)
        after = jax.tree.map(lambda h, u: h - dynamic_weight * share * u, server, mean)
        return jax.tree.map(lambda u, h: u - h / dynamic_weight, mean, after), after

    return Algorithm(init=init, gradient=gradient, upload=upload, combine=combine)
