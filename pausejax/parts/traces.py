"""Drops what JAX has traced with other values of a session."""

from collections.abc import Iterable

import jax

from pausejax.parts.digest import digest_and_jitted
from pausejax.parts.part import PartError
from pausejax.parts.registry import registered_parts

_traced: dict[tuple[str, str], str] = {}
"""Digests of the parts of one's own that this process has traced, by category and name.

They are as global as the caches of JAX.
"""


def forget_changed(used: Iterable[tuple[str, str]]) -> None:
    """Drops traces of a session's functions that may have read other values than the session has now.

    JAX recognizes a function by its identity. So it does not trace a function again after a notebook has
    changed a global value that the function reads. Jitted functions are always traced again, because the
    session may have called one while a value was another. If a part is new, or has changed since this process
    traced it, all caches of JAX are cleared: parts may share functions that are not jitted.

    Args:
      used: categories and names of the parts that are about to be traced. Parts of files of `use` do not
        count: an edited file has other functions.

    Raises:
      PartError: a part of `used` reaches a value that has no digest.
    """
    now, used = {}, set(used)
    for category, name in {*_traced, *used}:
        part = registered_parts().of(category).get(name)
        try:
            digest, jitted = digest_and_jitted(part) if part else ("", [])
        except PartError:
            if (category, name) in used:
                raise
            continue
        if digest:
            now[category, name] = digest
        for function in jitted if (category, name) in used else ():
            function.clear_cache()
    if now != _traced:
        jax.clear_caches()
        _traced.clear()
        _traced.update(now)
