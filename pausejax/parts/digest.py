"""Computes the digests of parts from outside the package. The identities of runs depend on these digests.

The digest of a part in a file of `use` or in an installed package covers the content of the part's file. A
session is a notebook or a script, with the modules that it imports. The digest of a part of a session covers
all that the part's function reaches: its code, its closures, and the global names that it uses, with the
session's functions, classes and constants. It covers objects of installed libraries by their names.
"""

import copyreg
import functools
import hashlib
import random
import sys
import types
import weakref
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from pausejax.parts.code import globals_of, imports_of
from pausejax.parts.origin import in_package, is_foreign, of_others
from pausejax.parts.part import Part, PartError

_PLAIN = (type(None), bool, int, float, complex, str, bytes, type(...), type(NotImplemented), range)
_DESCRIBING = frozenset(
    (
        *("__dict__", "__weakref__", "__doc__", "__module__", "__qualname__", "__firstlineno__", "_abc_impl"),
        *("__annotations__", "__annotate_func__", "__annotations_cache__", "__static_attributes__"),
        *("__slotnames__", "_value2member_map_"),
    )
)
"""Attributes of a class that do not change what the class does. Python adds some of them while a class is
used."""
_SEEDED_BY_THE_SYSTEM = (random._inst, np.random.mtrand._rand)
"""Generators whose states differ in each process. Libraries hold them, for example in `scipy.stats.norm`."""

_CACHES = (weakref.WeakKeyDictionary, weakref.WeakValueDictionary)


def is_of_session(part: Part) -> bool:
    """Returns whether a part was defined in a notebook, a script, or a module that these import.

    The parts of installed packages and of the files of `use` are not of the session.
    """
    if part.function.__module__ == "__main__":
        return True
    return not (part.is_of_use or of_others(Path(part.file).resolve()))


def digest_of(part: Part) -> str:
    """Returns the digest of a part; "" for a part of the package.

    Raises:
      PartError: the part is of the session and reaches a value that has no digest.
    """
    if in_package(part.file):
        return ""
    if not is_of_session(part):
        return hashlib.sha256(Path(part.file).read_bytes()).hexdigest()
    content = _Content()
    try:
        content.add(part.function, part.name)
        if part.notes:
            content.add(dict(part.notes), part.name)
    except _NoDigest as error:
        raise PartError(
            f"{part.where}: uses {error}, which the identity of a run can't cover. Put the part into a file, "
            "and name the file in use"
        ) from error
    return content.digest()


class _NoDigest(Exception):
    """A value has no digest; the message names the value."""


class _Content:
    """Digest of values by their content, equal in every process."""

    def __init__(self) -> None:
        self._found = hashlib.sha256()
        self._seen: dict[int, int] = {}
        self._alive: list[Any] = []

    def digest(self) -> str:
        return self._found.hexdigest()

    def _put(self, *words: Any) -> None:
        for word in words:
            text = word if isinstance(word, bytes) else str(word).encode()
            self._found.update(f"{len(text)};".encode() + text)

    def add(self, value: Any, name: str) -> None:
        """Adds a value; in an error, `name` says where the value was found.

        Raises:
          _NoDigest: the value has no digest.
        """
        if type(value) in _PLAIN:
            self._put(type(value).__name__, repr(value))
            return
        if id(value) in self._seen:
            self._put("again", self._seen[id(value)])
            return
        self._seen[id(value)] = len(self._seen)
        self._alive.append(value)  # if it were freed, another value could get its id
        try:
            self._add_one(value, name)
        except (_NoDigest, RecursionError) as error:
            raise error if isinstance(error, _NoDigest) else _NoDigest(name) from error

    def _add_one(self, value: Any, name: str) -> None:
        if isinstance(value, types.FunctionType):
            self._add_function(value, name)
        elif isinstance(value, types.CodeType):
            self._add_code(value, name)
        elif isinstance(value, types.ModuleType):
            self._put("module", value.__name__)
            if not is_foreign(value.__name__):
                own = {key: one for key, one in vars(value).items() if not key.startswith("__")}
                self._add_all(own, name)
        elif isinstance(value, type):
            self._put("class", value.__module__, value.__qualname__)
            if not _is_named_by_library(value):
                self.add((type(value), value.__bases__), f"{name}.__bases__")
                own = {key: one for key, one in vars(value).items() if key not in _DESCRIBING}
                self._add_all(own, name)
        elif type(value) in (list, tuple):
            self._put(type(value).__name__, len(value))
            for place, one in enumerate(value):
                self.add(one, f"{name}[{place}]")
        elif type(value) in (dict, types.MappingProxyType):
            self._put(type(value).__name__, len(value))
            for key, one in value.items():
                self.add(key, name)
                self.add(one, f"{name}[{key!r}]")
        elif isinstance(value, set | frozenset):
            self._put(type(value).__name__, *sorted(_alone(one, name) for one in value))
            self._add_subclass(value, name)
        elif hasattr(value, "__array__") and hasattr(value, "dtype"):
            self._add_array(value, name)
            if beside := _beside(value):
                self.add(beside, name)
            self._add_subclass(value, name)
        else:
            self._add_object(value, name)

    def _add_all(self, values: Mapping[str, Any], name: str) -> None:
        for key in sorted(values):
            self._put(key)
            self.add(values[key], f"{name}.{key}")

    def _add_function(self, function: types.FunctionType, name: str) -> None:
        code = function.__code__
        home = str(function.__globals__.get("__name__"))
        if is_foreign(home):
            self._put("function", home, function.__qualname__)
        else:
            self._add_code(code, name)
            self.add(function.__defaults__, name)
            self.add(function.__kwdefaults__, name)
            self._add_all(_public(function.__dict__), name)
            for imported in imports_of(code, function.__globals__):
                self.add(imported, name)
            for key in sorted(set(globals_of(code)) & function.__globals__.keys()):
                self._put(key)
                self.add(function.__globals__[key], key)
        for key, cell in zip(code.co_freevars, function.__closure__ or (), strict=True):
            self._put(key)
            try:
                found = cell.cell_contents
            except ValueError:  # the variable is assigned later
                continue
            self.add(found, f"{name}.{key}")

    def _add_code(self, code: types.CodeType, name: str) -> None:
        names = (code.co_names, code.co_varnames, code.co_freevars, code.co_cellvars)
        counts = (code.co_argcount, code.co_posonlyargcount, code.co_kwonlyargcount, code.co_flags)
        self._put("code", code.co_code, code.co_exceptiontable, *names, *counts)
        for constant in code.co_consts:
            self.add(constant, name)

    def _add_array(self, array: Any, name: str) -> None:
        try:
            found = np.asarray(array)
        except TypeError:  # a key of JAX
            import jax

            found = np.asarray(jax.random.key_data(array))
        self._put("array", array.dtype, found.shape)
        if found.dtype.kind == "O":
            self.add(found.ravel().tolist(), name)
        else:
            self._put(found.tobytes())

    def _add_subclass(self, value: Any, name: str) -> None:
        """Adds what a value of a subclass has beside its numbers or members."""
        if not _is_of_library(type(value)):
            self.add((type(value), getattr(value, "__dict__", {})), name)
        elif isinstance(value, np.ndarray) and type(value) is not np.ndarray:  # such as `np.matrix`
            self._put(type(value).__qualname__)

    def _add_object(self, value: Any, name: str) -> None:
        self.add(type(value), name)
        if isinstance(value, property):
            self.add((value.fget, value.fset), name)
        elif isinstance(value, functools.cached_property):
            self.add(value.func, name)
        elif isinstance(value, staticmethod | classmethod):
            self.add(value.__func__, name)
        elif isinstance(value, types.MethodType):
            self.add((value.__self__, value.__func__), name)
        elif isinstance(value, functools.partial):
            self.add((value.func, value.args, value.keywords), name)
        elif isinstance(value, types.MemberDescriptorType | types.GetSetDescriptorType):
            self._put(value.__qualname__)
        elif callable(getattr(value, "__wrapped__", None)):  # such as a jitted or cached function
            self.add(value.__wrapped__, name)
            attributes = getattr(value, "__dict__", {})
            hidden = "_" if _is_of_library(type(value)) else "__"
            self._add_all({key: one for key, one in attributes.items() if not key.startswith(hidden)}, name)
        elif any(value is one for one in _SEEDED_BY_THE_SYSTEM) or isinstance(value, _CACHES):
            pass
        else:
            try:
                registered = copyreg.dispatch_table.get(type(value))
                how = registered(value) if registered else value.__reduce_ex__(4)
            except Exception as error:
                raise _NoDigest(f"{name}, a {type(value).__qualname__}") from error
            if not isinstance(how, str):
                self.add([_state(one, type(value)) for one in how], name)
            elif how.replace(".", "").isidentifier():
                self._put(how)
            else:  # such as a function of `np.frompyfunc`
                raise _NoDigest(f"{name}, a {type(value).__qualname__}")


def _is_of_library(kind: type) -> bool:
    # In some classes of Cython, `__module__` describes the attribute of the instances.
    return not isinstance(kind.__module__, str) or is_foreign(kind.__module__)


def _is_named_by_library(kind: type) -> bool:
    """Returns whether a class is of Python or a library, and its name stands for it.

    A library may also make a class from a class of one's own, such as `flax.linen.remat(Block)`. Its name
    does not say from which.
    """
    if not _is_of_library(kind):
        return False
    found: Any = sys.modules.get(str(kind.__module__))
    for name in kind.__qualname__.split("."):
        found = getattr(found, name, None)
    written_in_c = not isinstance(vars(kind).get("__module__"), str)
    return found is kind or written_in_c


def _state(part: Any, kind: type) -> Any:
    """Returns one part of an object's state, without what Python and flax add while the object is used."""
    if not isinstance(part, dict):
        return list(part) if isinstance(part, Iterator) else part
    kept = {
        key: one
        for key, one in part.items()
        if not isinstance(getattr(kind, str(key), None), functools.cached_property)
        and type(one).__qualname__ != "FlaxId"
    }
    return kept or None


def _beside(array: Any) -> tuple[Any, ...]:
    """Returns what an array holds beside its numbers: a mask, an index, coordinates, a name, attributes."""
    library = type(array).__module__.partition(".")[0]
    if isinstance(array, np.ma.MaskedArray):
        return (np.asarray(array.mask),)
    if library == "pandas" and hasattr(array, "index"):
        return np.asarray(array.index), getattr(array, "name", None), array.attrs
    if library == "xarray":
        coords = {key: np.asarray(one) for key, one in getattr(array, "coords", {}).items()}
        return array.dims, coords, getattr(array, "name", None), array.attrs
    return ()


def _alone(value: Any, name: str) -> str:
    content = _Content()
    content.add(value, name)
    return content.digest()


def _public(values: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in values.items() if not key.startswith("_")}
