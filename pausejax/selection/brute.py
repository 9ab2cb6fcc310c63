"""The argmax of (14) by enumeration: the paper's baseline, and the oracle of the exact selector."""

import math

import jax
import jax.numpy as jnp

from pausejax.selection.exact import Selection, check_inputs, rank_infinities

MAX_SETS = 50_000_000
"""`brute_force` refuses to enumerate more sets than this."""
_BLOCK = 4096


def brute_force(ucb: jax.Array, score: jax.Array, m: int) -> Selection:
    """The set of m clients with the largest min ucb + Σ score, by trying all C(K, m) of them.

    Arguments, ties, infinities and errors as for `best_set`.

    Raises:
      ValueError: also if there are more than `MAX_SETS` sets.
    """
    check_inputs(ucb, score, m)
    num_clients = ucb.shape[0]
    num_sets = math.comb(num_clients, m)
    if num_sets > MAX_SETS:
        raise ValueError(
            f"m: choosing {m} out of {num_clients} gives {num_sets} sets; brute force takes at most {MAX_SETS}"
        )
    finite_ucb = rank_infinities(ucb, m)
    block = min(_BLOCK, num_sets)
    binomials = jnp.asarray(
        [[min(math.comb(n, k), MAX_SETS) for k in range(m + 1)] for n in range(num_clients + 1)], jnp.int32
    )

    def members_of(number: jax.Array) -> jax.Array:
        """The set of that number in lexicographic order."""

        def step(carry, client):
            left, wanted = carry
            with_client = binomials[num_clients - 1 - client, jnp.maximum(wanted - 1, 0)]
            take = (wanted > 0) & (left < with_client)
            left = jnp.where(take | (wanted == 0), left, left - with_client)
            return (left, wanted - take), take

        _, taken = jax.lax.scan(step, (number, jnp.int32(m)), jnp.arange(num_clients))
        return jnp.nonzero(taken, size=m)[0].astype(jnp.int32)

    def body(carry, start):
        best_value, best_members = carry
        members = jax.vmap(members_of)(jnp.minimum(start + jnp.arange(block), num_sets - 1))
        value = jnp.min(finite_ucb[members], axis=1) + jnp.sum(score[members], axis=1)
        at = jnp.argmax(value)
        better = value[at] > best_value
        carry = (
            jnp.where(better, value[at], best_value),
            jnp.where(better, members[at], best_members),
        )
        return carry, None

    start = (jnp.float32(-jnp.inf), jnp.arange(m, dtype=jnp.int32))
    (_, members), _ = jax.lax.scan(body, start, jnp.arange(0, num_sets, block, dtype=jnp.int32))
    return Selection(members, jnp.min(ucb[members]) + jnp.sum(score[members]))
