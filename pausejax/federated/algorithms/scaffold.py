"""SCAFFOLD (Karimireddy et al. 2020)."""

from typing import Any

import jax
import jax.numpy as jnp

from pausejax import parts
from pausejax.federated.algorithms.base import Algorithm, Arrivals, Local, difference
from pausejax.federated.modules import Params


@parts.algorithm
def scaffold(*, optimizer: str) -> Algorithm:
    """Corrects every local step by c - c_k, the difference of the control variates of server and client.

    The algorithm is option II of Karimireddy et al. 2020, with data shares p_k in place of equal shares.
    Suppose that rounds weight their cohorts by data, (2), and that uploads are neither clipped nor noised.
    Then c = Σ p_k c_k holds after every round for every cohort. A client sends two vectors. Clipping and
    noise apply to both vectors.

    Raises:
      ValueError: the local optimizer is not "sgd". The control variates are computed from its steps.
    """
    if optimizer != "sgd":
        raise ValueError(f'optimizer = "{optimizer}": must be "sgd" with federated_algorithm = "scaffold"')

    def init(params: Params) -> tuple[Params, Params]:
        zeros = jax.tree.map(jnp.zeros_like, params)
        return zeros, zeros

    def gradient(gradient: Params, local: Local) -> Params:
        return jax.tree.map(lambda g, c, own: g + c - own, gradient, local.server, local.client)

    def upload(local: Local) -> tuple[Any, Params]:
        change = difference(local)[0]
        path = local.steps.astype(jnp.float32) * local.learning_rate
        own = jax.tree.map(lambda own, c, u: own - c - u / path, local.client, local.server, change)
        return {"update": change, "control": jax.tree.map(jnp.subtract, own, local.client)}, own

    def combine(mean: Any, params: Params, server: Params, arrived: Arrivals) -> tuple[Params, Params]:
        share = jnp.sum(arrived.share)
        return mean["update"], jax.tree.map(lambda c, u: c + share * u, server, mean["control"])

    return Algorithm(init=init, gradient=gradient, upload=upload, combine=combine)
