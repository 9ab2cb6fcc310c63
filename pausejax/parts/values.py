"""Tells what of a value is content: what it computes with, and not what Python or a library notes beside."""

import _abc
import abc
import contextlib
import copyreg
import functools
import logging
import os
import random
import sys
import types
import typing
from collections.abc import Collection, Iterator, Set
from typing import Any

import numpy as np

from pausejax.parts.origin import is_foreign, is_of_library, named

PLAIN = (type(None), bool, int, float, complex, str, bytes, type(...), type(NotImplemented), range)
CODE = (
    *("co_names", "co_varnames", "co_freevars", "co_cellvars"),
    *("co_argcount", "co_posonlyargcount", "co_kwonlyargcount", "co_flags"),
)
"""What a code object computes with, beside its constants and instructions."""

_DESCRIBING = frozenset(
    (
        *("__dict__", "__weakref__", "__doc__", "__module__", "__qualname__", "__firstlineno__", "_abc_impl"),
        *("__annotations__", "__annotate_func__", "__annotations_cache__", "__static_attributes__"),
        *("__slotnames__", "_value2member_map_"),
    )
)
"""Attributes of a class that do not change what the class does. Python adds some of them while a class is
used."""

_READABLE = ("__doc__", "__annotations__")
"""Attributes of classes and functions that are content only if code reads them."""

_OF_PROTOCOL = getattr(typing, "_no_init_or_replace_init", None)
"""The method `__init__` of classes of a protocol, which Python replaces."""

# Libraries hold such generators, for example in `scipy.stats.norm`.
_OF_PROCESS = (random._inst, np.random.mtrand._rand, os.environ, os.environb)
_NOTED = {"numpy": ("_ufunc",), "pydantic": ("_default_factory_takes_validated_data", "cls_ref")}
"""Attributes of objects of a library that are a cache or an address."""


def is_of_process(value: Any) -> bool:
    """Returns whether a value is one of the process and not of a study.

    It is a logger, the environment, or a generator that the system has seeded.
    """
    return any(value is one for one in _OF_PROCESS) or isinstance(value, logging.Logger)


def closed_over(library: str, name: str, value: Any) -> Any:
    """Returns the content of a variable that a function of a library closes over, or of its attribute."""
    # In `singledispatch`: its cache, and the number of classes that are registered with abstract classes.
    if library == "functools" and name in ("dispatch_cache", "_clear_cache", "cache_token"):
        return None
    # Schedules of optax convert their numbers when they are first called.
    return float(value) if library == "optax" and type(value) is int else value


def contents_of(module: types.ModuleType, names: Set[str]) -> dict[str, Any]:
    """Returns the global variables of a module of the user, without those that Python adds.

    Python puts each imported module of a package into the package. A lazy package, which has a function
    `__getattr__`, imports them when they are read. Only those that the code reads are content. All other
    variables are content, because code may also read them without naming them.

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


def is_content(kind: type, key: str, names: Set[str]) -> bool:
    """Returns whether an attribute of a class says what the class does.

    Args:
      kind: any class.
      key: the name of one of its attributes.
      names: the names that the code reads.
    """
    value = vars(kind)[key]
    if key == "__init__":
        # Python gives a class of a protocol the inherited method when it makes the first object.
        inherited = (vars(base)[key] for base in kind.__mro__[1:] if key in vars(base))
        return value is not next(one for one in inherited if one is not _OF_PROTOCOL)
    # The code that attrs writes contains a hash, which differs in each process.
    if key == "__hash__" and hasattr(value, "__code__"):
        return not value.__code__.co_filename.startswith("<attrs generated")
    written = key in ("__pydantic_fields__", "__pydantic_decorators__", "__pydantic_config__")
    described = key in _DESCRIBING and not (key in _READABLE and key in names)
    return not described and (written or not key.startswith("__pydantic_"))


def attributes_read(function: types.FunctionType, names: Set[str]) -> dict[str, Any]:
    """Returns the attributes with `__` that describe a function, if the code reads them.

    Args:
      function: any function.
      names: the names that the code reads.
    """
    own = vars(function).keys() | {"__name__", "__qualname__", *_READABLE}
    return {key: getattr(function, key) for key in own & names if key.startswith("__")}


def pytree_functions(kind: type) -> tuple[Any, ...]:
    """Returns the functions by which JAX takes objects of a class apart and makes them; () if none."""
    # JAX has no public function for this. If its module is not imported, no class is registered.
    registry = getattr(sys.modules.get("jax._src.tree_util"), "_registry", {})
    return (registry[kind].to_iter, registry[kind].from_iter) if kind in registry else ()


def registered_with(kind: type) -> list[type]:
    """Returns the classes that an abstract class counts as its own by its method `register`."""
    if not isinstance(kind, abc.ABCMeta):
        return []
    registered = (one() for one in _abc._get_dump(kind)[0])  # Python has no public function for this
    return [one for one in registered if one is not None]


def reduced(value: Any) -> str | list[Any]:
    """Returns what a pickle of an object consists of: a global name, or a function and its arguments."""
    if library_of(type(value)) == "jaxlib" and type(value).__name__ == "Device":
        return ["device", value.platform, value.id]
    reduce = copyreg.dispatch_table.get(type(value))
    how = reduce(value) if reduce else value.__reduce_ex__(4)
    if isinstance(how, str):
        return how
    function, arguments, *more = how
    noted = _NOTED.get(library_of(type(value)), ())
    return [function, arguments, *(_state(one, noted) for one in more)]


def _state(part: Any, noted: Collection[str]) -> Any:
    """Returns one part of an object's state: attributes, attributes and those in slots, or members."""
    if type(part) is tuple:
        return tuple(_state(one, noted) for one in part)
    if type(part) is dict:
        return {key: one for key, one in _without_number(part).items() if key not in noted}
    return list(part) if isinstance(part, Iterator) else part


def _without_number(attributes: dict[str, Any]) -> dict[str, Any]:
    """Returns the attributes of an object without the number that flax gives each module."""
    return {key: one for key, one in attributes.items() if type(one).__qualname__ != "FlaxId"}


def has_identity(value: Any) -> bool:
    """Returns whether code can tell one object in two places from two equal objects.

    A module of flax in two places shares its weights. Objects of a class without `__eq__` are compared as
    objects.
    """
    kind = type(value)
    if any(library_of(one) == "flax" for one in kind.__mro__):
        return True
    own = not (is_of_library(kind) or isinstance(value, type | types.FunctionType | types.ModuleType))
    compared = any("__eq__" in vars(one) for one in kind.__mro__[:-1])
    return kind is object or (own and not compared)


def library_of(kind: type) -> str:
    """Returns the name of the library that a class is of; "" for a class of one's own."""
    return str(kind.__module__).partition(".")[0] if is_of_library(kind) else ""


def is_array(value: Any) -> bool:
    """Returns whether a value is an array of any library; variables of flax are objects, not arrays."""
    kind = type(value)
    return hasattr(kind, "__array__") and hasattr(kind, "dtype") and library_of(kind) != "flax"


def attributes(value: Any, hidden: str) -> dict[str, Any]:
    """Returns the attributes of a value whose names do not begin with `hidden`."""
    members = [vars(kind).items() for kind in type(value).__mro__]
    slots = [key for items in members for key, one in items if isinstance(one, types.MemberDescriptorType)]
    found = {key: getattr(value, key) for key in slots if hasattr(value, key)}
    found |= getattr(value, "__dict__", {})
    return {key: one for key, one in _without_number(found).items() if not key.startswith(hidden)}


def beside_wrapped(value: Any) -> dict[str, Any]:
    """Returns the attributes of a library's object that wraps a function, such as a jitted function."""
    import jax

    kind, jitted = type(value), jax.jit(lambda: None)
    if kind is type(jitted):
        made = value.__getstate__()  # arguments of `jax.jit` have no other place
        options = getattr(made.get("global_cache_key"), "compiler_options_kvs", ())
        given = {"": (made.get("static_argnums"), made.get("static_argnames"), options)}
        return given | {key: one for key, one in attributes(value, "__").items() if key not in vars(jitted)}
    if kind is functools._lru_cache_wrapper:
        return attributes(value, "__")
    found = attributes(value, "_")
    if isinstance(vars(kind).get("__getstate__"), types.FunctionType):
        # Such as `joblib.memory.MemorizedFunc`, whose pickle leaves out a time.
        kept = value.__getstate__()
        return {key: kept[key] for key in found if key in kept}
    return found


def may_call_session(value: Any) -> bool:
    """Returns whether a value is a jitted function that may call functions of the session.

    Each one may, except a library's own, such as `jnp.where`. A library's method that the session has jitted,
    such as `jax.jit(net.apply)` of flax, may too.
    """
    if not hasattr(value, "clear_cache"):
        return False
    wrapped = getattr(value, "__wrapped__", None)
    home = str(getattr(wrapped, "__module__", ""))
    return not is_foreign(home) or named(home, str(getattr(wrapped, "__qualname__", ""))) is not value


def numbers_of(array: Any) -> np.ndarray:
    """Returns the numbers of an array, or of a key of JAX."""
    try:
        return np.asarray(array)
    except TypeError:
        import jax

        return np.asarray(jax.random.key_data(array))


def beside(array: Any) -> tuple[Any, ...]:
    """Returns what an array holds beside its numbers: a mask, an index, coordinates, a name, attributes."""
    library = library_of(type(array))
    if isinstance(array, np.ma.MaskedArray):
        return np.asarray(array.mask), array.hardmask, getattr(array, "fill_value", None)  # `masked` has none
    if library == "pandas":
        held = [getattr(array, key) for key in ("index", "columns") if hasattr(array, key)]
        indexes = [array] if hasattr(array, "names") else held
        dtypes = list(array.dtypes) if hasattr(array, "columns") else array.dtype
        noted = [getattr(array, key, None) for key in ("name", "freq", "attrs")]
        return dtypes, [one.__reduce__() for one in indexes], noted
    if library == "xarray":
        coords = getattr(array, "coords", {})
        places = {key: (one.dims, np.asarray(one), one.attrs) for key, one in coords.items()}
        orders = dict(getattr(array, "indexes", {}))
        return array.dims, places, orders, getattr(array, "name", None), array.attrs
    return (dict(array.attrs),) if hasattr(array, "attrs") else ()  # such as an array of zarr
