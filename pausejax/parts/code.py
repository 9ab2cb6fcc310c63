"""Finds what the code of a function reads: global names, also in texts, and modules that its call imports."""

import ast
import bisect
import contextlib
import dis
import importlib.util
import itertools
import re
import sys
import textwrap
import types
from collections.abc import Iterator, Mapping, Set
from typing import Any

from pausejax.parts.origin import is_foreign, is_foreign_spec

_EVALUATORS = frozenset(("eval", "evaluate", "exec", "query", "sql"))
"""Names of functions that evaluate a text, such as `table.query("speed > @LIMIT")`."""


def _instructions(code: types.CodeType) -> list[dis.Instruction]:
    """Returns the instructions of a code object. Those that only extend an argument are left out."""
    return [step for step in dis.get_instructions(code) if step.opname != "EXTENDED_ARG"]


def evaluators_of(code: types.CodeType, scope: Mapping[str, Any]) -> Iterator[str]:
    """Yields in which ways a code object, and those within it, may evaluate texts.

    The ways are the names of functions; "module" for functions of modules, such as `pandas.eval`; "sql"; and
    "method" for other methods. A method that is called without arguments, such as `net.eval()`, evaluates no
    text.

    Args:
      code: any code.
      scope: the global names of the code.
    """
    steps = _instructions(code)
    for before, step, after in zip(steps, steps[1:], steps[2:], strict=False):
        if step.argval in _EVALUATORS and step.opname.startswith("LOAD_"):
            if "GLOBAL" in step.opname or step.opname == "LOAD_NAME" or step.argval == "sql":
                yield step.argval
            elif not (after.opname in ("PRECALL", "CALL") and after.arg == 0):
                yield "module" if isinstance(scope.get(str(before.argval)), types.ModuleType) else "method"
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from evaluators_of(constant, scope)


def names_in(text: str, evaluators: Set[str]) -> set[str]:
    """Returns the names that a text reads if the functions `evaluators` evaluate it.

    Names after an @ always count, as in a query of pandas. All words of a query of SQL count. The names of a
    Python expression count if a function evaluates it, not a method. Python's `eval` and `exec` evaluate
    single names too. All words of other texts count for them, because a text may be part of an expression.
    """
    if not evaluators:
        return set()
    words = set(re.findall(r"\w+", text))
    by_python = bool(evaluators & {"eval", "exec"})
    if "sql" in evaluators or {"select", "from"} <= {word.lower() for word in words}:
        return words
    names = set(re.findall(r"@(\w+)", text))
    if by_python or (evaluators - {"method"} and not text.strip().isidentifier()):
        try:
            found = ast.walk(ast.parse(textwrap.dedent(text).strip()))
        except Exception:  # the text is no code, or a part of it
            return words if by_python else names
        names.update(one.id for one in found if isinstance(one, ast.Name))
    return names


def imports_of(code: types.CodeType, scope: Mapping[str, Any]) -> Iterator[Any]:
    """Yields the objects that a function imports from the session's own modules when it is called.

    Libraries are left out: `code` contains their names. Modules that can't be imported are left out too: the
    call of the function reports them.

    Args:
      code: the function's code. Code objects within it count too.
      scope: the function's global names.
    """
    steps = _instructions(code)
    for place, step in enumerate(steps):
        if step.opname != "IMPORT_NAME":
            continue
        level, names = (steps[place - back].argval for back in (2, 1))
        with contextlib.suppress(Exception):  # a call of the function reports the error
            path = importlib.util.resolve_name("." * level + step.argval, scope.get("__package__") or "")
            if _is_own(path.partition(".")[0]):
                module = importlib.import_module(path)
                if not names:  # the code reads `a.b` by way of `a`
                    yield from map(sys.modules.get, itertools.accumulate(path.split("."), "{}.{}".format))
                yield from (_attribute(module, name) for name in names or ())
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from imports_of(constant, scope)


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
    for step in dis.get_instructions(code):
        if step.opname.startswith("LOAD_") and ("GLOBAL" in step.opname or step.opname == "LOAD_NAME"):
            yield step.argval
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from globals_of(constant)
