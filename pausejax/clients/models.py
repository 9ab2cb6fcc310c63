"""The models that a result keeps, ready to be applied."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import xarray as xr

from pausejax.clients.build import dataset_of, learning_of_group, static_values
from pausejax.data.dataset import Dataset
from pausejax.data.host import DataCache
from pausejax.federated.batches import prepare, scale
from pausejax.federated.kept import weights_of
from pausejax.federated.learning import Learning
from pausejax.federated.modules import Weights
from pausejax.parts import CATEGORIES, Part, PartError
from pausejax.parts.digest import digest_of, digest_of_made
from pausejax.parts.traces import forget_changed
from pausejax.study.plan import make_plan
from pausejax.study.runs import Group
from pausejax.study.study import Study


class KeptModel(NamedTuple):
    """Final model of one run."""

    apply: Callable[[Weights, Any], jax.Array]
    """Pure function from weights and inputs [B, ...] to the network's outputs [B, ...], without dropout.
    Inputs are raw samples, as the data set has them. Runs of one program have the same function. It raises a
    PartError if a notebook's model or data set has changed since the study."""
    weights: Weights
    """Parameters and batch norm's statistics of the evaluated model, float32 NumPy arrays."""
    clients: Weights | None
    """Weights that each client would use, leaves [K, ...]; None if all clients use `weights`."""


def models(study: Study, result: xr.Dataset, cache: DataCache) -> list[KeptModel]:
    """Returns the final model of every run of a result, in the order of its runs.

    Args:
      study: the study of the result.
      result: a result with the variable `final_model`, or a selection of its runs.
      cache: the data sets on the host.

    Raises:
      ValueError: the result has runs that the study lacks.
      SpecError: the data set of a run can't be loaded, or its model can't be built.
    """
    group_of = {run.identity: group for group in make_plan(study).groups for run in group.runs}
    identities = result["identity"].values.tolist()
    if unknown := [identity for identity in identities if identity not in group_of]:
        raise ValueError(
            f"result: {len(unknown)} of {len(identities)} runs do not belong to the result's spec. A data "
            "file or a file of user parts has changed, or this folder holds another file of its name. Joined "
            "results have only the first one's spec: read the models of each result before you join them"
        )
    forget_changed(study.outsiders)
    built: dict[str, tuple[Learning, Callable[[Weights, Any], jax.Array]]] = {}
    found, personal = result["final_model"].values, "client_models" in result
    of_clients = result["client_models"].values if personal else None
    models = []
    for row, identity in enumerate(identities):
        group = group_of[identity]
        if group.key not in built:
            built[group.key] = _built(study, group, cache)
        learning, apply = built[group.key]
        own = None if of_clients is None else of_clients[row, : group.static["num_clients"]]
        models.append(KeptModel(apply, *weights_of(learning, found[row], own)))
    return models


def _built(
    study: Study, group: Group, cache: DataCache
) -> tuple[Learning, Callable[[Weights, Any], jax.Array]]:
    """Returns a group's learning and the function that applies its model to raw inputs."""
    learning = learning_of_group(study, group, cache, jax.default_backend(), None)
    static = static_values(group)
    names = {(category, static[CATEGORIES[category].key]) for category in ("model", "dataset")}
    found = [(study.parts.get(*at), digest) for at, digest in study.outsiders.items() if at in names]
    held = [(part, digest) for part, digest in found if not part.is_of_use]
    return learning, _apply(learning, dataset_of(study, static, cache), held)


def _apply(
    learning: Learning, dataset: Dataset, held: Sequence[tuple[Part, str]]
) -> Callable[[Weights, Any], jax.Array]:
    mean, std = (float(number) for number in scale(dataset))
    made = {"model": learning.model, "dataset": learning.preprocess}
    expected = [(part, (digest, digest_of_made(made[part.category]))) for part, digest in held]

    def apply(weights: Weights, inputs: Any) -> jax.Array:
        if held:
            forget_changed((part.category, part.name) for part, _ in held)
        for part, digests in expected:
            # The part's functions read the values that a notebook's variables have now.
            if (digest_of(part), digest_of_made(made[part.category])) != digests:
                again = "Its kept models need the values that it had in their study"
                raise PartError(f"{part.where}: its content has changed since the study. {again}")
        weights, inputs = jax.tree.map(jnp.asarray, (weights, inputs))
        rows = inputs.reshape(inputs.shape[0], -1)
        prepared = prepare(learning, rows, jnp.float32(mean), jnp.float32(std))
        return learning.model.apply(*weights, prepared, key=None, training=False)[0]

    return apply
