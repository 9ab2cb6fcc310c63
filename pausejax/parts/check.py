"""Checks what parts return. The checks run when a part's functions are traced."""

from typing import Any

import jax
import jax.numpy as jnp

from pausejax.parts.part import Part, PartError


def expect_array(part: Part, what: str, made: Any, dtype: Any, shape: tuple[int, ...]) -> jax.Array:
    """Returns a result of a part as an array.

    Args:
      part: the part, which an error names.
      what: subject and verb of the error, such as "release returns".
      made: the result.
      dtype: the type that the result must have.
      shape: the shape that the result must have.

    Raises:
      PartError: the result has another type or shape.
    """
    array = jnp.asarray(made)
    if array.dtype != dtype or array.shape != shape:
        kind = f"{array.dtype.name} {list(array.shape)}"
        allowed = f"{jnp.dtype(dtype).name} {list(shape)}"
        raise PartError(f"{part.where}: {what} {kind}; must be {allowed}")
    return array


def expect_type(part: Part, made: Any, kind: type, name: str) -> None:
    """Checks the type of the object that a part returns.

    Args:
      part: the part, which an error names.
      made: the returned object.
      kind: the type that the object must have.
      name: the name under which users import the type.

    Raises:
      PartError: the object has another type.
    """
    if not isinstance(made, kind):
        raise PartError(f"{part.where}: must return a {name}, not {type(made).__name__}")


def types_of(tree: Any) -> Any:
    """Returns the structure of a tree, and the shapes and types of its arrays."""
    leaves, structure = jax.tree.flatten(tree)
    return structure, [(jnp.shape(leaf), jnp.result_type(leaf)) for leaf in leaves]
