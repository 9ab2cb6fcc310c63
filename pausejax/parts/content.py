"""Computes a digest of what values compute with, equal in every process.

It covers objects of installed libraries by their names, and objects of the session by their content. A
session is a notebook or a script, with the modules that it imports.
"""

import copy
import functools
import hashlib
import inspect
import types
from collections.abc import Mapping
from typing import Any

import numpy as np

from pausejax.parts.code import (
    Lookups,
    constants_of,
    evaluator_of,
    globals_of,
    imports_of,
    names_after_at,
    steps_of,
)
from pausejax.parts.origin import is_foreign, is_named_by_library, is_of_library
from pausejax.parts.values import (
    CODE,
    PLAIN,
    attributes,
    attributes_read,
    beside,
    beside_wrapped,
    closed_over,
    contents_of,
    has_identity,
    is_array,
    is_content,
    is_of_process,
    library_of,
    may_call_session,
    numbers_of,
    pytree_functions,
    reduced,
    registered_with,
)


class NoDigest(Exception):
    """A value has no digest; the message names the value."""


class Content:
    """Digest of values by their content, equal in every process.

    An object enters the digest of its holder by a digest of its own. So it does not matter whether two places
    hold one object or two equal ones, as after a notebook's cell was run again. Objects that code can tell
    apart (`has_identity`) enter by a number too. In a cycle, such as a class whose methods name the class, an
    object enters by its distance.
    """

    def __init__(self, last: "Content | None" = None) -> None:
        self.known = last.read if last else Lookups(set(), set())
        """What the code reads. Other modules of packages do not count: they may be imported later."""
        self.numbers: dict[int, int] = {**last.numbers} if last else {}
        """The number of each object that code can tell from an equal one, by its id."""
        self._numbered = len(self.numbers)
        self.read: Lookups = Lookups(set(), set())
        self.jitted: list[Any] = []  # jitted functions that may call functions of the session
        self.found = hashlib.sha256()
        # Objects that are being added, and those that reach them.
        self._open: dict[int, int] = {}
        self._lowest = 0  # the place in `_open` of the first object that the current one reaches
        self._done: dict[int, str] = {}
        self._free: dict[int, str] = {}
        """Digests of objects that neither have nor reach a number or a cycle. Members of sets share them."""
        self._ties = 0  # how many numbers and cycles have been added
        self._visits: list[str] = []  # to members of sets that reach numbers or cycles; copies share it
        self._alive: list[Any] = last._alive if last else []

    def is_complete(self) -> bool:
        """Returns whether the last `Content` knew all that the code reads, and all numbers of objects.

        What the code reads may be code that reads more. A member of a set may stand in a list after the set.
        """
        return self.read == self.known and len(self.numbers) == self._numbered

    def _put(self, *words: Any) -> None:
        for word in words:
            text = word if isinstance(word, bytes) else str(word).encode()
            self.found.update(f"{len(text)};".encode() + text)

    def add(self, value: Any, name: str) -> None:
        """Adds a value; in an error, `name` says where the value was found.

        Raises:
          NoDigest: the value has no digest.
        """
        if type(value) in PLAIN:
            # Python refuses to write more than 4,300 decimal digits.
            self._put(type(value).__name__, hex(value) if type(value) is int else repr(value))
            if type(value) is str:
                self.read.in_queries.update(names_after_at(value))
            return
        key = id(value)
        if key in self._free:
            self._put("object", self._free[key])
            return
        before = self._ties
        if has_identity(value):
            self._put("the", self.numbers.setdefault(key, len(self.numbers)))
            self._ties += 1
        if key in self._open:
            place = self._open[key]
            self._put("again", len(self._open) - place)
            self._lowest = min(self._lowest, place)
            self._ties += 1
        elif key in self._done:
            self._put("object", self._done[key])
            self._ties += 1
        else:
            self._put("object", self._close(value, name))
            if self._ties == before:
                self._free[key] = self._done[key]

    def _close(self, value: Any, name: str) -> str:
        """Returns the digest of an object, and keeps it if the object reaches nothing that is being added."""
        self._alive.append(value)  # if it were freed, another value could get its id
        place = self._open[id(value)] = len(self._open)
        outer = self.found, self._lowest
        self.found, self._lowest = hashlib.sha256(), place
        try:
            self._add_one(value, name)
        except Exception as error:  # such as a deleted array
            kind = type(value).__qualname__
            raise error if isinstance(error, NoDigest) else NoDigest(f"{name}, a {kind}") from error
        digest, lowest = self.found.hexdigest(), self._lowest
        if lowest == place:
            self._done[id(value)] = digest
            for one in [*self._open][place:]:
                del self._open[one]
        self.found, self._lowest = outer[0], min(outer[1], lowest)
        return digest

    def _add_one(self, value: Any, name: str) -> None:
        if type(value) is not value.__class__:  # such as a function with a decorator of wrapt
            raise NoDigest(f"{name}, a {type(value).__name__}")
        if isinstance(value, types.FunctionType):
            self._add_function(value, name)
        elif isinstance(value, types.CodeType):
            self._add_code(value, name)
        elif isinstance(value, types.ModuleType):
            self._put("module", value.__name__ if is_foreign(value.__name__) else "")
            if not is_foreign(value.__name__):
                self._add_all(contents_of(value, self.known.names | self.known.in_queries), name)
        elif isinstance(value, type):
            # A script is another module if it is imported, or executed by another process.
            self._put("class", value.__module__ if is_of_library(value) else "", value.__qualname__)
            if not is_named_by_library(value):
                names = self.known.names
                self.add((type(value), value.__bases__), f"{name}.__bases__")
                found = {key: one for key, one in vars(value).items() if is_content(value, key, names)}
                self._put(*found)  # code may read them in their order
                self._add_all(found, name)
                self.add(pytree_functions(value), name)
                self._put(*sorted({self._alone(one, name) for one in registered_with(value)}))
                if "__subclasses__" in names:
                    self.add(type.__subclasses__(value), name)
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
            self._put(type(value).__name__, *sorted(self._alone(one, name) for one in value))
            self._add_subclass(value, name)
        elif is_array(value):
            self._add_array(value, name)
            if more := beside(value):
                self.add(more, name)
            self._add_subclass(value, name)
        else:
            self._add_object(value, name)

    def _alone(self, member: Any, name: str) -> str:
        """Returns the digest of a member of a set, whose members have no order."""
        content = copy.copy(self)
        # What a member has found must not count for the next one, because their order is by chance.
        content.found, content._open = hashlib.sha256(), {**self._open}
        content._done, content.numbers = {**self._done}, {**self.numbers}
        content.add(member, name)
        self._visits += [name] * (content._ties > self._ties)
        self._lowest, self._ties = content._lowest, content._ties
        if len(self._visits) > 10_000:
            raise NoDigest(f"{name}, a set whose members hold each other")
        return content.found.hexdigest()

    def _add_all(self, values: Mapping[str, Any], name: str) -> None:
        self._put("many", len(values))
        for key in sorted(values):
            self._put(key)
            self.add(values[key], f"{name}.{key}")

    def _add_function(self, function: types.FunctionType, name: str) -> None:
        code = function.__code__
        home = str(function.__globals__.get("__name__"))
        top = home.partition(".")[0]
        if is_foreign(home):
            self._put("function", home, function.__qualname__)
            # Made by a call, whose arguments may be defaults. A wrapped function's attributes are copied.
            if "<locals>" in code.co_qualname:
                given = {key: closed_over(top, key, one) for key, one in attributes(function, "__").items()}
                self.add((function.__defaults__, function.__kwdefaults__, given), name)
            if function.__name__ == "<lambda>":
                self._add_code(code, name)
        else:
            self._add_code(code, name)
            if evaluator := evaluator_of(code, function.__globals__):
                raise NoDigest(f"{name}, a function that evaluates text by {evaluator}")
            self.add(function.__defaults__, name)
            self.add(function.__kwdefaults__, name)
            self._add_all(attributes(function, "__") | attributes_read(function, self.known.names), name)
            for imported in imports_of(code, function.__globals__):
                self.add(imported, name)
            read = self.known.in_queries.union(globals_of(code)) - {"__name__"}
            for key in sorted(function.__globals__.keys() & read):
                self._put(key)
                self.add(function.__globals__[key], key)
        for key, cell in zip(code.co_freevars, function.__closure__ or (), strict=True):
            self._put(key)
            try:
                found = cell.cell_contents
            except ValueError:  # the variable is assigned later
                continue
            self.add(closed_over(top, key, found), f"{name}.{key}")

    def _add_code(self, code: types.CodeType, name: str) -> None:
        self._put("code", *(getattr(code, field) for field in CODE), *steps_of(code))
        self.read.names.update(code.co_names)
        for constant in constants_of(code, self.known.names):
            self.add(constant, name)

    def _add_array(self, array: Any, name: str) -> None:
        found = numbers_of(array)
        # JAX computes with a weakly typed array in the type of the other operand.
        weak = ["weak"] if getattr(array, "weak_type", False) is True else []
        self._put("array", library_of(type(array)), array.dtype, found.shape, *weak)
        if found.dtype.names:  # between the fields may be unused memory
            self._add_all({key: found[key] for key in found.dtype.names}, name)
        elif found.dtype.hasobject or found.dtype.kind == "T":  # such as words, which are elsewhere in memory
            self.add(found.ravel().tolist(), name)
        elif found.dtype.char in "gG":  # a number of 10 bytes in 16
            self.add([repr(one) for one in found.ravel()], name)
        else:
            self._put(found.tobytes())

    def _add_subclass(self, value: Any, name: str) -> None:
        """Adds what a value of a subclass has beside its numbers or members."""
        if not is_of_library(type(value)):
            self.add((type(value), attributes(value, "__")), name)
        elif isinstance(value, np.ndarray) and type(value) is not np.ndarray:  # such as `np.matrix`
            own = {} if library_of(type(value)) == "numpy" else attributes(value, "__")
            self._put(type(value).__qualname__)
            self.add(own, name)  # such as a unit

    def _add_object(self, value: Any, name: str) -> None:
        self.add(type(value), name)
        if not is_of_library(type(value)):  # its pickle, for example, may leave attributes out
            self.add(attributes(value, "__"), name)
        if isinstance(value, property):
            self.add((value.fget, value.fset, value.fdel), name)
        elif isinstance(value, functools.cached_property):
            # The value that it stores in an object looks like an assigned attribute.
            raise NoDigest(f"{name}, a cached_property")
        elif isinstance(value, staticmethod | classmethod):
            self.add(value.__func__, name)
        elif isinstance(value, types.MethodType):
            self.add((value.__self__, value.__func__), name)
        elif isinstance(value, functools.partial):
            self.add((value.func, value.args, value.keywords, attributes(value, "__")), name)
        elif isinstance(value, types.MemberDescriptorType | types.GetSetDescriptorType):
            self._put(value.__qualname__)
        elif callable(wrapped := inspect.getattr_static(value, "__wrapped__", None)):
            self.jitted += [value] if may_call_session(value) else []
            self.add(wrapped, name)
            self._add_all(beside_wrapped(value) if is_of_library(type(value)) else {}, name)
        elif not is_of_process(value):
            how = reduced(value)
            if not isinstance(how, str):
                self.add(how, name)
            elif how.replace(".", "").isidentifier():
                module = str(getattr(value, "__module__", ""))
                self._put(module if is_foreign(module) else "", how)
                self.add(getattr(value, "__value__", None), name)  # of a type alias
            else:  # such as a function of `np.frompyfunc`
                raise NoDigest(f"{name}, a {type(value).__qualname__}")
