"""Computes the quantities that users register, and lists their variables and metrics."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from pausejax.analysis.quantities import Metric, Variable, series
from pausejax.parts import Bound, Part, PartError
from pausejax.study.study import Study


class Snapshot(NamedTuple):
    """State of one run after a round, which a quantity may read. Arrays [n] have a slot for each member."""

    round: jax.Array
    """int32 scalar, t."""
    members: jax.Array
    """int32 [n], selected clients, ascending; if rounds overlap, the clients that have finished. -1 pads."""
    arrived: jax.Array
    """bool [n], members whose update has reached the server; False for pads, failed and late clients."""
    weights: jax.Array
    """float32 [n], aggregation weights in this round.

    Weights of members whose update has not arrived are 0. All other weights sum to 1.
    """
    latency: jax.Array
    """float32 [K], latency of each client in this round, seconds."""
    counts: jax.Array
    """int32 [K], number of updates that each client has released, including this round. Each release spends
    privacy. A client that fails before the release has not released its update."""
    mean_reward: jax.Array
    """float32 [K], mean of τ_min / τ over each client's releases."""
    data_share: jax.Array
    """float32 [K], |D_k| / |D|."""
    available: jax.Array | None
    """bool [K], clients that could be selected; None if all clients are always available."""
    loss: jax.Array
    """float32 [n], members' mean minibatch loss; NaN if the update has not arrived, and in mode "bandit"."""
    params: Any
    """Global model after the round, a pytree; None in mode "bandit"."""


def record(
    quantities: tuple[Bound, ...], snapshot: Snapshot, hyper: dict[str, jax.Array]
) -> dict[str, jax.Array]:
    """Computes every quantity of one run after a round, float32 scalars by name.

    Raises:
      PartError: a quantity is not one number.
    """
    found = {}
    for bound in quantities:
        made = bound.build(snapshot, **hyper)
        try:
            value = jnp.asarray(made)
        except (TypeError, ValueError) as error:
            raise PartError(
                f"{bound.part.where}: must return one number, not {type(made).__name__}"
            ) from error
        real = jnp.issubdtype(value.dtype, jnp.integer) or jnp.issubdtype(value.dtype, jnp.floating)
        if value.shape != () or not real:
            kind = f"{value.dtype.name} {list(value.shape)}"
            raise PartError(f"{bound.part.where}: must return one number, not {kind}")
        found[bound.name] = value.astype(jnp.float32)
    return found


def parts_of(study: Study) -> list[Part]:
    """Returns the parts of the quantities that a study records."""
    return [study.parts.get("quantity", name) for name in study.quantities]


def variables_of(study: Study, taken: frozenset[str]) -> dict[str, Variable]:
    """Returns the result's variables for a study's quantities, by name.

    Raises:
      PartError: the name of a quantity is taken.
    """
    found = {}
    for part in parts_of(study):
        if part.name in taken:
            raise PartError(f"{part.where}: this name is taken. Choose another name")
        found[part.name] = series(part.notes["units"], part.summary or part.name)
    return found


def metrics_of(study: Study) -> dict[str, Metric]:
    """Returns the metrics of runs for a study's quantities, by name.

    A quantity that is reduced by "last" describes the run at its end, as a final accuracy does.
    """
    return {
        part.name: Metric(
            part.name,
            "at_end" if part.notes["reduce"] == "last" else part.notes["reduce"],
            part.notes["maximize"],
            part.notes["units"],
            part.summary or part.name,
            learned=part.notes["reduce"] == "last",
            label=part.notes["label"],
            heading=part.notes["label"],
        )
        for part in parts_of(study)
    }
