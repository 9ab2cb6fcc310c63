"""Your own policy with a hyper-parameter: some members of the last cohort stay for another round."""

from typing import NamedTuple

import jax
import jax.numpy as jnp

import pausejax
from pausejax.policies import Clients, Cohort, Feedback, Policy, View, cohort


class StickyState(NamedTuple):
    clients: Clients
    last: jax.Array
    """bool [K], the last cohort."""


@pausejax.policy
def sticky(
    *,
    num_clients: int,
    clients_per_round: int,
    stickiness: float = pausejax.Parameter(
        0.5, "probability that a member stays for the next round", low=0, high=1, symbol="s"
    ),
) -> Policy:
    """Selects random clients; each member stays for the next round with a given probability."""

    def init(key: jax.Array, clients: Clients) -> StickyState:
        return StickyState(clients, jnp.zeros(num_clients, bool))

    def select(key: jax.Array, state: StickyState, view: View) -> Cohort:
        coin, draw = jax.random.split(key)
        stays = state.last & (jax.random.uniform(coin, (num_clients,)) < stickiness)
        # The clients with the lowest values are selected. Members that stay have values below 0, other
        # clients have random values from 0 to 1, and unavailable clients have infinity.
        place = jax.random.uniform(draw, (num_clients,)) - stays.astype(jnp.float32)
        if view.available is not None:
            place = jnp.where(view.available, place, jnp.inf)
        first = jnp.argsort(place)[:clients_per_round].astype(jnp.int32)
        return cohort(jnp.where(jnp.isfinite(place[first]), first, -1), state.clients.data_share)

    def update(state: StickyState, view: View, feedback: Feedback) -> StickyState:
        slot = jnp.where(feedback.members >= 0, feedback.members, num_clients)
        return state._replace(last=jnp.zeros(num_clients, bool).at[slot].set(True, mode="drop"))

    return Policy(init, select, update)
