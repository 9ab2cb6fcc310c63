"""FedPer (Arivazhagan et al. 2019): personal layers, which clients never send."""

import re
from typing import Annotated, Any

import jax
import jax.numpy as jnp

from pausejax import parts
from pausejax.federated.algorithms.base import Algorithm, Arrivals, Local, State
from pausejax.federated.modules import Params
from pausejax.parts import Parameter

_Layers = dict[str, Any]


@parts.algorithm
def fedper(
    *,
    personal_layers: Annotated[
        str,
        Parameter(help="fedper: names of the personal layers, separated by commas; empty: the last layer"),
    ] = "",
) -> Algorithm:
    """Keeps personal layers at every client and averages the other layers (Arivazhagan et al. 2019).

    On the test set, the personal layers are the mean over all clients that have trained, weighted by their
    data.

    Raises:
      ValueError: the model has no named layers, lacks one of the given names, or all layers are named. Or
        `personal_layers` is empty, and the layers' names do not tell which is the last.
    """

    def cut(params: Params) -> tuple[_Layers, _Layers]:
        layers = _layers(params)
        personal = _personal(layers, personal_layers)
        shared = {name: layer for name, layer in layers.items() if name not in personal}
        return shared, {name: layers[name] for name in personal}

    def join(params: Params, layers: _Layers) -> Params:
        return {**params, "params": layers} if _is_nested(params) else layers

    def start(params: Params, server: State, client: _Layers) -> Params:
        return join(params, {**_layers(params), **client})

    def upload(local: Local) -> tuple[_Layers, _Layers]:
        shared, personal = cut(local.params)
        return jax.tree.map(jnp.subtract, shared, cut(local.start)[0]), personal

    def combine(mean: _Layers, params: Params, server: State, arrived: Arrivals) -> tuple[Params, State]:
        return join(params, {**jax.tree.map(jnp.zeros_like, _layers(params)), **mean}), server

    return Algorithm(init=lambda params: ((), cut(params)[1]), start=start, upload=upload, combine=combine)


def _is_nested(params: Params) -> bool:
    """Returns whether the layers are nested under "params", as in linen."""
    return isinstance(params, dict) and set(params) == {"params"} and isinstance(params["params"], dict)


def _layers(params: Params) -> _Layers:
    layers = params["params"] if _is_nested(params) else params
    if not isinstance(layers, dict) or len(layers) < 2:
        raise ValueError('federated_algorithm = "fedper": the model must have two or more named layers')
    return layers


def _personal(layers: _Layers, names: str) -> list[str]:
    """Returns the names of the personal layers among a model's layers."""
    asked = [name.strip() for name in names.split(",") if name.strip()]
    unknown = [name for name in asked if name not in layers]
    if unknown or len(set(asked)) == len(layers):
        allowed = ", ".join(layers)
        raise ValueError(f"personal_layers = {names!r}: must name some, but not all, of the layers {allowed}")
    return asked or [_last(layers)]


def _last(layers: _Layers) -> str:
    """Returns the name of the last layer, by the numbers in the names: layers_10 comes after layers_9.

    All names must begin with the same word in lower case and end with different numbers. Flax numbers layers
    without names of their own, such as Dense_0, in the order in which they are made. The order of the calls
    may be another.
    """
    found = [re.fullmatch(r"([a-z].*?)(\d+)", str(name)) for name in layers]
    numbers = {int(match[2]): name for match, name in zip(found, layers, strict=True) if match}
    if len(numbers) < len(layers) or len({match[1] for match in found if match}) > 1:
        raise ValueError(
            'federated_algorithm = "fedper": the names of the layers do not tell which is the last. Set '
            f"personal_layers to some of {', '.join(layers)}"
        )
    return numbers[max(numbers)]
