"""Computes the digests of parts from outside the package. The identities of runs depend on these digests.

The digest of an installed package's part covers the file that defines the part, and the function's code,
closure and defaults. A session is a notebook or a script, with the modules that it imports. The digest of a
session's part covers all that the part's function reaches: its code, its closures, and the global names
that it uses, with the session's functions, classes and constants. It covers objects of installed libraries
by their names.
"""

import types
from collections.abc import Callable
from typing import Any

from pausejax.parts.content import Content, NoDigest
from pausejax.parts.origin import in_package, is_foreign
from pausejax.parts.part import Part, PartError


def digest_of(part: Part) -> str:
    """Returns the digest of a part; "" for a part of the package.

    Raises:
      PartError: the part reaches a value that has no digest.
    """
    return digest_and_jitted(part)[0]


def digest_and_jitted(part: Part) -> tuple[str, list[Any]]:
    """Returns the digest of a part, and the functions under `jax.jit` that the part reaches.

    They are "" and [] for a part of the package.

    Raises:
      PartError: the part reaches a value that has no digest.
    """
    if in_package(part.file):
        return "", []
    try:
        content = _complete(lambda content: _add_part(content, part))
        return content.found.hexdigest(), content.jitted
    except NoDigest as error:
        raise PartError(
            f"{part.where}: uses {error}, which the identity of a run can't cover. Put the part into a file, "
            "and name the file in use"
        ) from error


def digest_of_made(value: Any) -> str:
    """Returns the digest of an object that a part has made; "" if the object has none."""
    try:
        return _complete(lambda content: content.add(value, "")).found.hexdigest()
    except NoDigest:
        return ""


def _complete(add: Callable[[Content], None]) -> Content:
    content = Content()
    add(content)
    while not content.is_complete():
        content = Content(content)
        add(content)
    return content


def _add_part(content: Content, part: Part) -> None:
    content.add(part.function, part.name)
    content.add(dict(part.groups), part.name)
    function = part.function
    # A jitted function, for example, is an object.
    if isinstance(function, types.FunctionType) and is_foreign(str(function.__globals__.get("__name__"))):
        # The library may have made the function in another function, with values of the session.
        made_from = function.__code__, function.__defaults__, function.__kwdefaults__
        content.add((part.content, *made_from), part.name)
    if part.notes:
        content.add(dict(part.notes), part.name)
