"""Sets the precision of a network's matrix products and convolutions, equal on every kind of device.

By default, a GPU multiplies float32 numbers as TF32 and a CPU does not. Here the study sets the precision of
both operands of every product, also in gradients. Sums are float32. "highest" multiplies float32 numbers.
"tf32" first rounds both operands to 10 bits after the leading bit, and "bf16" to 7 bits. A device with units
for a precision computes the same products faster; other devices multiply the rounded numbers.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, Literal, get_args

import jax
import jax.numpy as jnp
from jax import lax
from jax.extend import core
from jax.extend.core import primitives

Precision = Literal["highest", "tf32", "bf16"]
PRECISIONS: tuple[str, ...] = get_args(Precision)

_EXPONENT_BITS = 8
_MANTISSA_BITS = {"tf32": 10, "bf16": 7}
_PRODUCTS = ("dot_general", "conv_general_dilated")
_OWN_DERIVATIVES = ("custom_jvp_call", "custom_vjp_call", "custom_vjp_call_jaxpr")


def in_precision(apply: Callable[..., Any], precision: Precision) -> Callable[..., Any]:
    """Returns the pure function `apply` with all its products, and all products in its gradients, computed in
    `precision`.

    Products inside a function with its own derivative (`jax.custom_vjp`) stay float32.

    Raises:
      ValueError: `apply` multiplies inside an operation, such as `jax.shard_map`, whose products can't be
        rounded.
    """

    def exact(*args: Any, **kwargs: Any) -> Any:
        with jax.default_matmul_precision("highest"):
            return apply(*args, **kwargs)

    def coarse(*args: Any, **kwargs: Any) -> Any:
        (flat, structure) = jax.tree.flatten((args, kwargs))
        arrays = [place for place, leaf in enumerate(flat) if hasattr(leaf, "dtype")]

        def of_arrays(*given: jax.Array) -> Any:
            whole = list(flat)
            for place, array in zip(arrays, given, strict=True):
                whole[place] = array
            args, kwargs = jax.tree.unflatten(structure, whole)
            return exact(*args, **kwargs)

        inputs = [flat[place] for place in arrays]
        closed, shapes = jax.make_jaxpr(of_arrays, return_shape=True)(*inputs)
        outputs = _evaluate(closed, precision, *inputs)
        return jax.tree.unflatten(jax.tree.structure(shapes), outputs)

    return exact if precision == "highest" else coarse


def _evaluate(closed: core.ClosedJaxpr, precision: Precision, *inputs: jax.Array) -> list[jax.Array]:
    """Evaluates a traced function, with its products computed from rounded operands."""
    values: dict[Any, Any] = dict(zip(closed.jaxpr.constvars, closed.consts, strict=True))
    values |= zip(closed.jaxpr.invars, inputs, strict=True)

    def read(atom: Any) -> Any:
        return atom.val if isinstance(atom, core.Literal) else values[atom]

    for equation in closed.jaxpr.eqns:
        if equation.primitive.name in _PRODUCTS:
            found = [_product(equation, precision, *map(read, equation.invars))]
        elif equation.primitive is primitives.remat_p:  # `jax.checkpoint`
            again = core.ClosedJaxpr(equation.params["jaxpr"], ())
            keep = {name: equation.params[name] for name in ("prevent_cse", "policy")}
            found = jax.checkpoint(partial(_evaluate, again, precision), **keep)(*map(read, equation.invars))
        else:
            inner = [atom for atom in equation.invars if not isinstance(atom, core.Literal)]
            alone = _alone(closed.jaxpr, equation, inner, precision)
            found = core.jaxpr_as_fun(core.ClosedJaxpr(alone, ()))(*map(read, inner))
        values |= zip(equation.outvars, found, strict=True)
    return [read(atom) for atom in closed.jaxpr.outvars]


def _alone(jaxpr: core.Jaxpr, equation: Any, inner: list[Any], precision: Precision) -> core.Jaxpr:
    """Returns one equation as a function of its variables; products inside use rounded operands."""
    if equation.primitive.name not in _OWN_DERIVATIVES:
        operation = equation.primitive.name
        params = {name: _within(value, precision, operation) for name, value in equation.params.items()}
        equation = equation.replace(params=params)
    return jaxpr.replace(constvars=[], invars=inner, outvars=equation.outvars, eqns=[equation])


def _within(value: Any, precision: Precision, operation: str) -> Any:
    """Returns a parameter of an operation, such as a loop body; products inside use rounded operands."""
    if isinstance(value, tuple) and any(isinstance(part, core.ClosedJaxpr) for part in value):
        parts = [_within(part, precision, operation) for part in value]
        return value._make(parts) if hasattr(value, "_make") else tuple(parts)
    if not _multiplies(value):
        return value
    if operation == "shard_map" or not isinstance(value, core.ClosedJaxpr):
        raise ValueError(
            f'precision = "{precision}": the products of a {operation} can\'t be rounded. Use "highest"'
        )
    shapes = [jax.ShapeDtypeStruct(aval.shape, aval.dtype) for aval in value.in_avals]
    return jax.make_jaxpr(partial(_evaluate, value, precision))(*shapes)


def _multiplies(value: Any) -> bool:
    """Returns whether a parameter of an operation has products inside."""
    if isinstance(value, tuple):
        return any(map(_multiplies, value))
    if not isinstance(value, core.ClosedJaxpr | core.Jaxpr):
        return False
    return any(
        equation.primitive.name in _PRODUCTS or any(map(_multiplies, equation.params.values()))
        for equation in value.eqns
    )


def _product(equation: Any, precision: Precision, left: jax.Array, right: jax.Array) -> jax.Array:
    """Computes a product of rounded operands. Products in its gradient also use rounded operands."""
    multiply = partial(equation.primitive.bind, **equation.params)
    if not left.dtype == right.dtype == jnp.float32:
        return multiply(left, right)

    def forward(left: jax.Array, right: jax.Array) -> jax.Array:
        # A product without a precision of its own uses the units for the types of its operands.
        params = {**equation.params, "precision": None, "preferred_element_type": jnp.float32}
        return equation.primitive.bind(*(_rounded(x, precision) for x in (left, right)), **params)

    def backward(operands: tuple[jax.Array, jax.Array], change: jax.Array) -> Any:
        closed = jax.make_jaxpr(lambda change: jax.vjp(multiply, *operands)[1](change))(change)
        return tuple(_evaluate(closed, precision, change))

    product = jax.custom_vjp(forward)
    product.defvjp(lambda left, right: (forward(left, right), (left, right)), backward)
    return product(left, right)


def _rounded(x: jax.Array, precision: Precision) -> jax.Array:
    # The rounding is explicit, because XLA may remove a conversion to bfloat16 on devices without such units.
    coarse = lax.reduce_precision(x, _EXPONENT_BITS, _MANTISSA_BITS[precision])
    return coarse.astype(jnp.bfloat16) if precision == "bf16" else coarse
