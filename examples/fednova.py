"""An algorithm of one's own: FedNova (Wang et al. 2020), which takes the number of local steps out."""

import jax
import jax.numpy as jnp

import pausejax
from pausejax.federated.algorithms import Algorithm, Arrived, Local


@pausejax.algorithm
def fednova() -> Algorithm:
    """Averages updates by step, so that clients with many steps do not weigh more than their data."""

    def upload(local: Local):
        steps = local.steps.astype(jnp.float32)
        return jax.tree.map(lambda w, start: (w - start) / steps, local.params, local.start), local.client

    def combine(mean, params, server, arrived: Arrived):
        steps = jnp.sum(arrived.weight * arrived.steps)  # of the whole cohort, by its weights
        return jax.tree.map(lambda per_step: steps * per_step, mean), server

    return Algorithm(upload=upload, combine=combine)
