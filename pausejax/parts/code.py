"""Finds what the code of a function reads: global names, and modules that it imports when it is called."""

import contextlib
import dis
import importlib.util
import sys
import types
from collections.abc import Iterator, Mapping
from itertools import accumulate
from typing import Any

from pausejax.parts.origin import is_foreign, is_foreign_spec

EVALUATORS = frozenset(("eval", "evaluate", "exec", "query", "sql"))
"""Names of functions that evaluate a text, such as `table.query("speed > @LIMIT")`."""


def imports_of(code: types.CodeType, scope: Mapping[str, Any]) -> Iterator[Any]:
    """Yields the objects that a function imports from the session's own modules when it is called.

    Libraries are left out: `code` contains their names. Modules that can't be imported are left out too: the
    call of the function reports them.

    Args:
      code: the function's code. Code objects within it count too.
      scope: the function's global names.
    """
    steps = [step for step in dis.get_instructions(code) if step.opname != "EXTENDED_ARG"]
    for place, step in enumerate(steps):
        if step.opname != "IMPORT_NAME":
            continue
        level, names = (steps[place - back].argval for back in (2, 1))
        with contextlib.suppress(Exception):  # a call of the function reports the error
            path = importlib.util.resolve_name("." * level + step.argval, scope.get("__package__") or "")
            if _is_own(path.partition(".")[0]):
                module = importlib.import_module(path)
                if not names:  # the code reads `a.b` by way of `a`
                    yield from map(sys.modules.get, accumulate(path.split("."), "{}.{}".format))
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


def globals_of(code: types.CodeType) -> Iterator[str]:
    """Yields the global names that a code object, and those within it, may read."""
    for step in dis.get_instructions(code):
        if step.opname.startswith("LOAD_") and ("GLOBAL" in step.opname or step.opname == "LOAD_NAME"):
            yield step.argval
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from globals_of(constant)
