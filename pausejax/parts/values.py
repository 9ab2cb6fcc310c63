"""Tells what of a value is content: what it computes with, and not what Python or a library notes beside."""

import contextlib
import random
import sys
import types
import weakref
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

PLAIN = (type(None), bool, int, float, complex, str, bytes, type(...), type(NotImplemented), range)
CODE = (
    *("co_code", "co_exceptiontable", "co_names", "co_varnames", "co_freevars", "co_cellvars"),
    *("co_argcount", "co_posonlyargcount", "co_kwonlyargcount", "co_flags", "co_consts"),
)
"""What a code object computes with. The rest of it describes the place in the file."""

_DESCRIBING = frozenset(
    (
        *("__dict__", "__weakref__", "__doc__", "__module__", "__qualname__", "__firstlineno__", "_abc_impl"),
        *("__annotations__", "__annotate_func__", "__annotations_cache__", "__static_attributes__"),
        *("__slotnames__", "_value2member_map_", "__hash__"),
    )
)
"""Attributes of a class that do not change what the class does. Python adds some of them while a class is
used."""

_SEEDED_BY_THE_SYSTEM = (random._inst, np.random.mtrand._rand)
_CACHES = (weakref.WeakKeyDictionary, weakref.WeakValueDictionary)


def is_of_process(value: Any) -> bool:
    """Returns whether a value differs in each process: a cache, or a generator that the system has seeded.

    Libraries hold such generators, for example in `scipy.stats.norm`.
    """
    return any(value is one for one in _SEEDED_BY_THE_SYSTEM) or isinstance(value, _CACHES)


def contents_of(module: types.ModuleType, names: Iterable[str]) -> dict[str, Any]:
    """Returns the global variables of a module of the user, without those that Python adds.

    Python puts each imported module of a package into the package. A lazy package, which has a function
    `__getattr__`, imports them when they are read. Only those that the code reads are content.

    Args:
      module: any module.
      names: the names that the code reads.
    """
    found = {key: one for key, one in vars(module).items() if not key.startswith("__")}
    modules = {key for key, one in found.items() if isinstance(one, types.ModuleType)}
    inside = {key for key in modules if found[key].__name__ == f"{module.__name__}.{key}"}
    found = {key: one for key, one in found.items() if key not in inside or key in names}
    if lazy := vars(module).get("__getattr__"):
        found["__getattr__"] = lazy
        for key in names:
            with contextlib.suppress(Exception):  # a call of the function reports the error
                found[key] = getattr(module, key)
    return found


def is_content(key: str) -> bool:
    """Returns whether an attribute of a class says what the class does."""
    made_from_fields = key.startswith("__pydantic_") and key != "__pydantic_fields__"
    return key not in _DESCRIBING and not made_from_fields


def pytree_functions(kind: type) -> tuple[Any, ...]:
    """Returns the functions by which JAX takes objects of a class apart and makes them; () if none."""
    # JAX has no public function for this. If its module is not imported, no class is registered.
    registry = getattr(sys.modules.get("jax._src.tree_util"), "_registry", {})
    return (registry[kind].to_iter, registry[kind].from_iter) if kind in registry else ()


def state(part: Any) -> Any:
    """Returns one part of an object's state, without the number that flax gives each module."""
    if isinstance(part, dict):
        return {key: one for key, one in part.items() if type(one).__qualname__ != "FlaxId"}
    return list(part) if isinstance(part, Iterator) else part


def is_array(value: Any) -> bool:
    """Returns whether a value is an array of any library; variables of flax are objects, not arrays."""
    kind = type(value)
    of_flax = kind.__module__.partition(".")[0] == "flax"
    return hasattr(kind, "__array__") and hasattr(kind, "dtype") and not of_flax


def attributes(value: Any, hidden: str) -> dict[str, Any]:
    """Returns the attributes of a value whose names do not begin with `hidden`."""
    members = [vars(kind).items() for kind in type(value).__mro__]
    slots = [key for items in members for key, one in items if isinstance(one, types.MemberDescriptorType)]
    found = {key: getattr(value, key) for key in slots if hasattr(value, key)}
    found |= getattr(value, "__dict__", {})
    return {key: one for key, one in found.items() if not key.startswith(hidden)}


def beside(array: Any) -> tuple[Any, ...]:
    """Returns what an array holds beside its numbers: a mask, an index, coordinates, a name, attributes."""
    library = type(array).__module__.partition(".")[0]
    if isinstance(array, np.ma.MaskedArray):
        return np.asarray(array.mask), getattr(array, "fill_value", None)  # `masked` has none
    if library == "pandas":
        kind, index = getattr(array, "dtype", None), getattr(array, "index", None)
        categories = getattr(kind, "categories", None), getattr(kind, "ordered", None)
        names = None if index is None else (np.asarray(index), list(index.names))
        own = list(getattr(array, "names", ())) or getattr(array, "name", None)
        return categories, names, own, getattr(array, "attrs", None)
    if library == "xarray":
        coords = getattr(array, "coords", {})
        beside = {key: (one.dims, np.asarray(one), one.attrs) for key, one in coords.items()}
        return array.dims, beside, getattr(array, "name", None), array.attrs
    return ()
