"""Quantities of users' own: what they are computed from, and how they land in the result."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from pausejax.analysis.quantities import Metric, Variable, series
from pausejax.parts import Bound, Part, PartError
from pausejax.study.study import Study


class Snapshot(NamedTuple):
    """One run after a round, as a quantity may look at it. Slots belong to `members`."""

    round: jax.Array
    """int32 scalar, t."""
    members: jax.Array
    """int32 [n], ascending: the selected clients; if rounds overlap, those that have finished. -1 pads."""
    arrived: jax.Array
    """bool [n], whose update has reached the server: False for pads and for who has failed or is late."""
    weights: jax.Array
    """float32 [n], the aggregation weights that were used: 0 for who has not arrived; the others sum to 1."""
    latency: jax.Array
    """float32 [K], seconds that each client takes if it begins in this round."""
    counts: jax.Array
    """int32 [K], releases so far, this round's among them: what has spent privacy. A client that fails before
    its update is released has not released one."""
    mean_reward: jax.Array
    """float32 [K], mean of τ_min / τ over each client's releases."""
    data_share: jax.Array
    """float32 [K]."""
    available: jax.Array | None
    """bool [K], who could be selected; None where it is always everyone."""
    loss: jax.Array
    """float32 [n], the members' mean minibatch loss; NaN for who has not arrived, and in mode "bandit"."""
    params: Any
    """The global model after the round, a pytree; None in mode "bandit"."""


def record(
    quantities: tuple[Bound, ...], snapshot: Snapshot, hyper: dict[str, jax.Array]
) -> dict[str, jax.Array]:
    """Every quantity of one run after a round, float32 scalars by name.

    Raises:
      PartError: one is no number.
    """
    found = {}
    for bound in quantities:
        made = bound.build(snapshot, **hyper)
        try:
            value = jnp.asarray(made)
        except TypeError as error:
            raise PartError(
                f"{bound.part.where}: must return one number, not {type(made).__name__}"
            ) from error
        if value.shape != () or not jnp.issubdtype(value.dtype, jnp.number):
            kind = f"{value.dtype.name} {list(value.shape)}"
            raise PartError(f"{bound.part.where}: must return one number, not {kind}")
        found[bound.name] = value.astype(jnp.float32)
    return found


def parts_of(study: Study) -> list[Part]:
    """The quantities that a study asks for."""
    return [study.parts.get("quantity", name) for name in study.quantities]


def variables_of(study: Study, taken: frozenset[str]) -> dict[str, Variable]:
    """The variables that a study's quantities are.

    Raises:
      PartError: a name is that of another variable.
    """
    found = {}
    for part in parts_of(study):
        if part.name in taken:
            raise PartError(
                f"{part.where}: the name stands for something else in every result; choose another"
            )
        found[part.name] = series(part.notes["units"], part.summary or part.name)
    return found


def metrics_of(study: Study) -> dict[str, Metric]:
    """The figures per run that a study's quantities are."""
    return {
        part.name: Metric(
            part.name,
            part.notes["reduce"],
            part.notes["maximize"],
            part.notes["units"],
            part.summary or part.name,
            label=part.notes["label"],
            heading=part.notes["label"],
        )
        for part in parts_of(study)
    }
