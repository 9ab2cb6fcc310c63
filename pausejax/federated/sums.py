"""Sums float32 rows in an order that depends on the rows alone."""

import jax
import jax.numpy as jnp


@jax.named_scope("add_in_turn")
def add_in_turn(total: jax.Array, run: jax.Array, rows: jax.Array) -> jax.Array:
    """Adds rows to the totals of their runs; the rows of a run are added one after the other.

    If the device's threads set the order, the sums would differ between executions.

    Args:
      total: float32 [R, d], the totals.
      run: int32 [n], the run of each row; a row whose run is R is not added.
      rows: float32 [n, d], the rows.
    """
    place = jnp.arange(run.shape[0])
    earlier = (run[:, None] == run[None, :]) & (place[:, None] > place[None, :])
    turn = jnp.sum(earlier, axis=1)
    turns = jnp.max(jnp.where(run < total.shape[0], turn, -1)) + 1
    # Rows that are not added in this step get distinct indices beyond the end, so that all indices are
    # unique.
    beyond = total.shape[0] + place

    def one_turn(now: jax.Array, total: jax.Array) -> jax.Array:
        to = jnp.where((turn == now) & (run < total.shape[0]), run, beyond)
        return total.at[to].add(rows, mode="drop", unique_indices=True)

    if run.shape[0] == 1:
        return one_turn(jnp.int32(0), total)
    return jax.lax.fori_loop(0, turns, one_turn, total)
