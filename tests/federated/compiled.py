"""Functions of the package that replays of training ask often, as programs."""

import jax

from pausejax import privacy
from pausejax.federated import batches

epoch_orders = jax.jit(batches.epoch_orders, static_argnums=(2, 3))
privatize = jax.jit(privacy.privatize, static_argnums=4)
