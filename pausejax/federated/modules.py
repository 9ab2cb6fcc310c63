"""Models as two pure functions, made from flax modules (linen or nnx) or from pairs (init, apply)."""

import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
from flax import linen
from jax.extend.core import Literal

from pausejax.parts import Part, PartError

if TYPE_CHECKING:
    from flax import nnx  # loaded only when such a model is built

Params = Any

_MODES = {"training": True, "train": True, "deterministic": False}
"""Argument names for the switch between training and evaluation, with their values in training."""


class Weights(NamedTuple):
    """Parameters and statistics of a model, which a client receives and sends back."""

    params: Params
    """Parameters, pytree of float32 arrays."""
    statistics: Params
    """Statistics, such as the running ones of batch norm: pytree of float32 arrays, {} if there are none."""


class Model(NamedTuple):
    """Network as two pure functions; `jax.vmap` of `apply` over the weights runs many clients."""

    init: Callable[[jax.Array], Weights]
    """Function from a key to the initial weights."""
    apply: Callable[..., tuple[jax.Array, Params]]
    """Function `(params, statistics, inputs, *, key, training) -> (outputs [B, ...], statistics)`. The inputs
    [B, ...] are as the data set prepares them. The key is for dropout and is used only in training.
    Statistics change only in training."""
    convolutional: bool = False
    has_statistics: bool = False
    constant: tuple[bool, ...] = ()
    """For each array of the statistics, whether training never changes it."""


class Redrawn(NamedTuple):
    """Linen module whose initial parameters are drawn by `draw`."""

    module: linen.Module
    draw: Callable[[jax.Array, Params], Params]
    """Function from a key and the module's own parameters to new parameters of the same shapes."""


def adapt(
    part: Part, example: jax.ShapeDtypeStruct, output_shape: tuple[int, ...], values: dict[str, Any]
) -> Model:
    """Builds the model of a part and checks it by shapes alone, without computing its outputs.

    Args:
      part: the model part, which returns a linen or nnx module, or a pair (init, apply).
      example: shape and type of one batch of inputs, [B, ...].
      output_shape: the shape of one sample's output.
      values: keyword arguments of the part.

    Raises:
      PartError: the model can't be built, does not fit the inputs, or has outputs of another shape.
    """
    num_outputs = output_shape[-1] if output_shape else 1
    known = {**values, "input_shape": example.shape[1:], "num_outputs": num_outputs}
    made: Model = part.surrounded(_building(part, example, known))
    try:
        weights = jax.eval_shape(made.init, jax.random.key(0))
    except PartError:
        raise
    except Exception as error:
        raise PartError(_misfit(part, example, error)) from error
    for leaf in jax.tree.leaves(weights):
        if leaf.dtype != jnp.float32:
            raise PartError(f"{part.where}: parameters and statistics must be float32, not {leaf.dtype}")
    constant: list[bool] = []
    for training in (False, True):
        try:
            closed, (outputs, statistics) = jax.make_jaxpr(
                lambda weights, inputs, training=training: made.apply(
                    *weights, inputs, key=jax.random.key(0), training=training
                ),
                return_shape=True,
            )(weights, example)
        except Exception as error:
            raise PartError(_misfit(part, example, error)) from error
        shape = getattr(outputs, "shape", None)
        if shape != (example.shape[0], *output_shape):
            raise PartError(
                f"{part.where}: for inputs of shape {example.shape}, outputs must have the shape "
                f"{(example.shape[0], *output_shape)}, not "
                f"{shape if shape is not None else type(outputs).__name__}"
            )
        before: Any = jax.tree.structure(weights.statistics)
        if jax.tree.structure(statistics) != before:
            raise PartError(f"{part.where}: its statistics must keep their structure when it is applied")
        returned = passed_on(closed.jaxpr)[len(jax.tree.leaves(outputs)) :]
        first = len(jax.tree.leaves(weights.params))
        constant = [place == at for at, place in enumerate(returned, first)]
    return made._replace(
        convolutional=any(leaf.ndim > 2 for leaf in jax.tree.leaves(weights.params)),
        has_statistics=bool(constant),
        constant=tuple(constant),
    )


def passed_on(jaxpr: Any) -> list[int | None]:
    """Returns, for each output of a jaxpr, the index of the input that it is; None if it is computed.

    Functions within `jax.jit`, `jax.checkpoint` and `jax.lax.scan` count too. An input that one of these
    functions transposes and transposes back is the same input.
    """
    found = {var: (place, tuple(range(var.aval.ndim))) for place, var in enumerate(jaxpr.invars)}
    for equation in jaxpr.eqns:
        # A scan along another axis than the first one transposes its inputs, and its outputs back.
        first = equation.invars[0] if equation.primitive.name == "transpose" else None
        if not isinstance(first, Literal) and first in found:
            given, axes = found[first]
            found[equation.outvars[0]] = given, tuple(axes[p] for p in equation.params["permutation"])
        if equation.primitive.name not in ("jit", "pjit", "checkpoint", "remat2", "scan"):
            continue
        inner = equation.params["jaxpr"]
        places = passed_on(getattr(inner, "jaxpr", inner))
        if equation.primitive.name == "scan":
            # A carried value is unchanged if each step returns it in the same place. An array that is scanned
            # is returned unchanged if each step returns its slice.
            constants, carried = _constants_and_carried(equation.params)
            places[:carried] = [p if p == constants + o else None for o, p in enumerate(places[:carried])]
            places[carried:] = [None if p is None or p < constants + carried else p for p in places[carried:]]
        for var, place in zip(equation.outvars, places, strict=True):
            source = None if place is None else equation.invars[place]
            if not isinstance(source, Literal) and source in found:
                found[var] = found[source]
    outputs = [None if isinstance(var, Literal) else found.get(var) for var in jaxpr.outvars]
    return [one[0] if one and one[1] == tuple(range(len(one[1]))) else None for one in outputs]


def _constants_and_carried(scan: dict[str, Any]) -> tuple[int, int]:
    """Returns how many inputs of a scan are constants, and how many are carried. Constants come first."""
    if "num_consts" in scan:
        return scan["num_consts"], scan["num_carry"]
    constants, carried, _ = scan["ft_in"].unpack()  # since JAX 0.11
    return len(constants), len(carried)


def _building(part: Part, example: jax.ShapeDtypeStruct, values: dict[str, Any]) -> Model:
    def make(**more: Any) -> Any:
        try:
            return part.build(**values, **more)
        except (PartError, jax.errors.JAXTypeError):
            raise
        except Exception as error:
            raise PartError(f"{part.where}: can't be built: {_first_line(error)}") from error

    if "rngs" in part.given:
        from flax import nnx

        def seeded(key: jax.Array) -> nnx.Module:
            module = make(rngs=nnx.Rngs(key))
            if not isinstance(module, nnx.Module):
                raise PartError(
                    f"{part.where}: takes rngs, so it must return an nnx module, not {type(module).__name__}"
                )
            return module

        return _from_nnx(nnx.eval_shape(lambda: seeded(jax.random.key(0))), seeded)
    made = make()
    if isinstance(made, Redrawn):
        return _from_linen(made.module, example, made.draw)
    if isinstance(made, linen.Module):
        return _from_linen(made, example, None)
    if isinstance(made, tuple) and len(made) == 2 and all(map(callable, made)):
        return _from_pair(*made)
    from flax import nnx

    if isinstance(made, nnx.Module):
        raise PartError(
            f"{part.where}: must take rngs, because it returns an nnx module. Otherwise all seeds would have "
            "the same initial weights"
        )
    raise PartError(
        f"{part.where}: must return a linen module, an nnx module or a pair (init, apply), not "
        f"{type(made).__name__}"
    )


def _from_linen(
    module: linen.Module,
    example: jax.ShapeDtypeStruct,
    draw: Callable[[jax.Array, Params], Params] | None,
) -> Model:
    switches = _switches(type(module).__call__)

    def init(key: jax.Array) -> Weights:
        inputs = jnp.zeros((1, *example.shape[1:]), example.dtype)
        keys = {"params": key, "dropout": jax.random.fold_in(key, 0)}
        variables = dict(module.init(keys, inputs, **switches(False)))
        params = variables.pop("params", {})
        return Weights(draw(key, params) if draw else params, variables)

    def apply(
        params: Params, statistics: Params, inputs: jax.Array, *, key: Any = None, training: bool = False
    ) -> tuple[jax.Array, Params]:
        rngs = {"dropout": key} if training and key is not None else None
        variables = {"params": params, **statistics}
        if not (training and statistics):
            outputs: Any = module.apply(variables, inputs, rngs=rngs, **switches(training))
            return outputs, statistics
        outputs, changed = module.apply(
            variables, inputs, rngs=rngs, mutable=list(statistics), **switches(True)
        )
        return outputs, dict(changed)

    return Model(init, apply)


def _from_nnx(abstract: "nnx.Module", make: "Callable[[jax.Array], nnx.Module]") -> Model:
    from flax import nnx

    def split(module: nnx.Module) -> tuple[Any, Any, Any, Any]:
        """Splits a module into its graph, parameters, random streams and all other state."""
        found: Any = nnx.split(module, nnx.Param, nnx.RngState, ...)
        return found

    graph, params_like, streams_like, rest_like = split(abstract)

    def parted(module: nnx.Module) -> Weights:
        _, params, _, rest = split(module)
        return Weights(nnx.to_pure_dict(params), nnx.to_pure_dict(rest))

    def init(key: jax.Array) -> Weights:
        return parted(make(key))

    def apply(
        params: Params, statistics: Params, inputs: jax.Array, *, key: Any = None, training: bool = False
    ) -> tuple[jax.Array, Params]:
        streams = _streams(streams_like, jax.random.key(0) if key is None else key)
        module = nnx.merge(graph, _filled(params_like, params), streams, _filled(rest_like, statistics))
        if training:
            module.train()
        else:
            module.eval()
        outputs = module(inputs, **_switches(type(module).__call__)(training))
        return outputs, parted(module).statistics if training else statistics

    return Model(init, apply)


def _from_pair(init: Callable[..., Any], apply: Callable[..., Any]) -> Model:
    switches, takes_key = _switches(apply), "key" in inspect.signature(apply).parameters

    def applied(
        params: Params, statistics: Params, inputs: jax.Array, *, key: Any = None, training: bool = False
    ) -> tuple[jax.Array, Params]:
        more = {"key": key} if takes_key else {}
        return apply(params, inputs, **more, **switches(training)), statistics

    return Model(lambda key: Weights(init(key), {}), applied)


def _switches(function: Callable[..., Any]) -> Callable[[bool], dict[str, Any]]:
    """Returns a function from `training` to the keyword arguments that switch a function's mode."""
    taken = inspect.signature(function).parameters.keys() & _MODES.keys()
    return lambda training: {name: _MODES[name] == training for name in taken}


def _filled(like: "nnx.State", values: Params) -> "nnx.State":
    """Returns a state with the structure of `like` and the arrays of `values`."""
    from flax import nnx

    state = jax.tree.map(lambda leaf: leaf, like)
    nnx.replace_by_pure_dict(state, values)
    return state


def _streams(like: "nnx.State", key: jax.Array) -> "nnx.State":
    """Returns the random streams of a module, restarted from one key."""
    leaves, structure = jax.tree.flatten(like)
    begun = []
    for place, leaf in enumerate(leaves):
        if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
            own = jax.random.fold_in(key, place)
            begun.append(jax.random.split(own, leaf.shape) if leaf.shape else own)
        else:
            begun.append(jnp.zeros(leaf.shape, leaf.dtype))
    return jax.tree.unflatten(structure, begun)


def _misfit(part: Part, example: jax.ShapeDtypeStruct, error: Exception) -> str:
    return f"{part.where}: can't be applied to inputs of shape {example.shape[1:]}: {_first_line(error)}"


def _first_line(error: Exception) -> str:
    return next(iter(str(error).splitlines()), "") or type(error).__name__
