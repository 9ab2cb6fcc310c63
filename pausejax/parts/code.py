"""Finds the global names that the code of a function reads, also in queries, and the modules it imports."""

import bisect
import builtins
import contextlib
import dis
import importlib.util
import inspect
import itertools
import re
import sys
import types
from collections.abc import Iterator, Mapping, Set
from typing import Any, NamedTuple

from pausejax.parts.origin import is_foreign, is_foreign_spec

_EVALUATORS = frozenset(("eval", "evaluate", "exec", "query", "sql"))
"""Names of functions of Python and of libraries that evaluate a text, such as `pandas.eval`."""


class Lookups(NamedTuple):
    """Names that code looks up."""

    names: set[str]
    """Names of global variables, attributes and modules."""
    in_queries: set[str]
    """Names that follow an @ in a text."""


def _instructions(code: types.CodeType) -> list[dis.Instruction]:
    """Returns the instructions of a code object. Those that only extend an argument are left out."""
    return [step for step in dis.get_instructions(code) if step.opname != "EXTENDED_ARG"]


def _nested(code: types.CodeType) -> Iterator[types.CodeType]:
    """Yields a code object, and those of the functions and classes within it."""
    yield code
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _nested(constant)


def evaluator_of(code: types.CodeType, scope: Mapping[str, Any]) -> str:
    """Returns the function by which some code evaluates text, such as "eval" or "pandas.eval"; "" if none.

    Methods do not count, except `sql`: `table.query` reads only the names that stand after an @.

    Args:
      code: any code. Code objects within it count too.
      scope: the global names of the code.
    """
    local: dict[str, Any] = {}
    imports = any(not _EVALUATORS.isdisjoint(one.co_names) for one in _nested(code))
    source: Any = None
    held: Any = None  # what the last instructions have loaded, as far as it is known
    for opname, name in itertools.chain.from_iterable(map(_loads_and_stores, _nested(code))):
        if opname.startswith("STORE_"):
            local[name] = held
        elif opname == "IMPORT_NAME":
            source = held = _library(name) if imports else None
        elif opname in ("LOAD_ATTR", "LOAD_METHOD", "IMPORT_FROM"):
            owner = source if opname == "IMPORT_FROM" else held
            held = getattr(owner, name, None) if isinstance(owner, types.ModuleType) else None
            if name == "sql" and (owner is None or is_foreign(type(owner).__module__)):
                return "sql"
        elif opname in ("LOAD_GLOBAL", "LOAD_NAME"):
            held = scope.get(name, vars(builtins).get(name))
        else:
            held = local.get(name)
        if inspect.isroutine(held) and held.__name__ in _EVALUATORS and is_foreign(str(held.__module__)):
            return f"{held.__module__}.{held.__name__}".removeprefix("builtins.")
    return ""


def _loads_and_stores(code: types.CodeType) -> Iterator[tuple[str, str]]:
    """Yields the instructions of a code object that load, store or import a name, with the name.

    Some instructions of newer Pythons load or store two names.
    """
    for step in _instructions(code):
        names = step.argval if isinstance(step.argval, tuple) else (step.argval,)
        kinds = re.findall(r"(?:LOAD|STORE)_FAST", step.opname) if len(names) == 2 else [step.opname]
        if step.opname.startswith(("LOAD_", "STORE_", "IMPORT_")) and step.opcode not in dis.hasconst:
            yield from zip(kinds, map(str, names), strict=False)
        elif step.opname not in ("PUSH_NULL", "NOP", "CACHE"):
            yield "LOAD_FAST", ""  # a value that is not known


def _library(name: str) -> types.ModuleType | None:
    """Imports a module of a library; returns None for a module of the user, or if the import fails."""
    with contextlib.suppress(Exception):
        return None if _is_own(name.partition(".")[0]) else importlib.import_module(name)
    return None


def names_after_at(text: str) -> set[str]:
    """Returns the names that a text reads after an @, such as LIMIT in `table.query("speed > @LIMIT")`."""
    return {name for path in re.findall(r"@\s*([\w.]+)", text) for name in path.split(".") if name}


def imports_of(code: types.CodeType, scope: Mapping[str, Any]) -> Iterator[Any]:
    """Yields the objects that a function imports from the session's own modules when it is called.

    Libraries are left out: `code` contains their names. Modules that can't be imported are left out too: the
    call of the function reports them.

    Args:
      code: the function's code. Code objects within it count too.
      scope: the function's global names.
    """
    package = scope.get("__package__") or ""
    steps = [*itertools.chain.from_iterable(map(_instructions, _nested(code)))]
    for level, listed, step in zip(steps, steps[1:], steps[2:], strict=False):
        if step.opname != "IMPORT_NAME":
            continue
        names = listed.argval
        with contextlib.suppress(Exception):  # a call of the function reports the error
            path = importlib.util.resolve_name("." * level.argval + step.argval, package)
            if _is_own(path.partition(".")[0]):
                module = importlib.import_module(path)
                if not names:  # the code reads `a.b` by way of `a`
                    yield from map(sys.modules.get, itertools.accumulate(path.split("."), "{}.{}".format))
                yield from (_attribute(module, name) for name in names or ())


def _is_own(top: str) -> bool:
    """Returns whether a module or package that a function can import is the user's."""
    try:
        found = importlib.util.find_spec(top)
    except ValueError:  # a module without a spec, such as a notebook
        return not is_foreign(top)
    return found is not None and not is_foreign_spec(found)


def _attribute(module: types.ModuleType, name: str) -> Any:
    """Returns what `from module import name` gives, which may be a module; `module` itself without a name."""
    if name and not hasattr(module, name):
        return importlib.import_module(f"{module.__name__}.{name}")
    return getattr(module, name, module)


def steps_of(code: types.CodeType) -> list[tuple[Any, ...]]:
    """Returns what the instructions of a code object do, and where they handle exceptions.

    Python calls `jnp.sin(x)` by other instructions if `jnp` is imported in the same text, such as a file,
    than if it is imported in another cell. Both forms are returned as one.
    """
    steps = [step for step in _instructions(code) if step.opname != "PUSH_NULL"]
    offsets = [step.offset for step in steps]

    def place(offset: int) -> int:
        return bisect.bisect_left(offsets, offset)

    found: list[tuple[Any, ...]] = []
    for step in steps:
        name = "LOAD_ATTR" if step.opname == "LOAD_METHOD" else step.opname
        jumps = step.opcode in dis.hasjrel or step.opcode in dis.hasjabs
        read = step.argval if name in ("LOAD_ATTR", "LOAD_GLOBAL") else step.arg
        found.append((name, place(step.argval) if jumps else read))
    for entry in getattr(dis.Bytecode(code), "exception_entries"):  # noqa: B009 (mypy does not know it)
        found.append((*map(place, (entry.start, entry.end, entry.target)), entry.depth, entry.lasti))
    return found


def constants_of(code: types.CodeType, names: Set[str]) -> tuple[Any, ...]:
    """Returns the constants of a code object, without its docstring if no code reads docstrings.

    Args:
      code: any code.
      names: the names that code reads.
    """
    loaded = {step.arg for step in dis.get_instructions(code) if step.opcode in dis.hasconst}
    found: tuple[Any, ...] = code.co_consts
    is_described = found and isinstance(found[0], str) and 0 not in loaded
    return (None, *found[1:]) if is_described and "__doc__" not in names else found


def globals_of(code: types.CodeType) -> Iterator[str]:
    """Yields the global names that a code object, and those within it, may read."""
    for step in itertools.chain.from_iterable(map(_instructions, _nested(code))):
        if step.opname.startswith("LOAD_") and ("GLOBAL" in step.opname or step.opname == "LOAD_NAME"):
            yield step.argval
