"""Your own algorithm: FedNova (Wang et al. 2020), which averages updates per local step."""

from typing import Any

import jax
import jax.numpy as jnp

import pausejax
from pausejax.federated.algorithms import Algorithm, Arrivals, Local


@pausejax.algorithm
def fednova() -> Algorithm:
    """Averages clients' updates per local step, so that a client's weight depends only on its data."""

    def upload(local: Local) -> tuple[Any, Any]:
        steps = local.steps.astype(jnp.float32)
        per_step = jax.tree.map(lambda w, start: (w - start) / steps, local.params, local.start)
        return per_step, local.client

    def combine(mean: Any, params: Any, server: Any, arrived: Arrivals) -> tuple[Any, Any]:
        steps = jnp.sum(arrived.weight * arrived.steps)  # the mean number of steps over the cohort
        return jax.tree.map(lambda per_step: steps * per_step, mean), server

    return Algorithm(upload=upload, combine=combine)
