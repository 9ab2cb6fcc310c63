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
        allowed = f"{jnp.dtype(dtype).name} {list(shape)}"
        raise PartError(f"{part.where}: {what} {type_of(array)}; must be {allowed}")
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


def expect_types(part: Part, what: str, before: Any, after: Any) -> None:
    """Checks that a new state has the structure, shapes and types of the old state.

    Args:
      part: the part, which an error names.
      what: the function that returns the new state, such as "update".
      before: the old state, a pytree.
      after: the new state.

    Raises:
      PartError: the structure, a shape or a type differs.
    """
    old_structure: Any = jax.tree.structure(before)
    if jax.tree.structure(after) != old_structure:
        raise PartError(
            f"{part.where}: {what}: the new state must have the same pytree structure as the old state"
        )
    for (path, old), new in zip(jax.tree.leaves_with_path(before), jax.tree.leaves(after), strict=True):
        if types_of(new) != types_of(old):
            place = jax.tree_util.keystr(path)
            raise PartError(
                f"{part.where}: {what}: state{place} must stay {type_of(old)}, not become {type_of(new)}"
            )


def type_of(array: Any) -> str:
    """Returns the type and shape of an array in words, such as "float32 [3]"."""
    return f"{jnp.result_type(array).name} {list(jnp.shape(array))}"
