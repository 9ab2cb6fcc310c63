"""Drops what JAX has traced of parts that have changed since."""

from collections.abc import Iterable

import jax

from pausejax.parts.digest import digest_of
from pausejax.parts.part import PartError
from pausejax.parts.registry import registered_parts

_traced: dict[tuple[str, str], str] = {}
"""Digests of the parts of one's own that this process has traced, by category and name.

They are as global as the caches of JAX.
"""


def forget_changed(used: Iterable[tuple[str, str]]) -> None:
    """Clears JAX's caches if a part of one's own is new, or a part has changed since this process traced it.

    JAX recognizes a function by its identity. So it does not trace a function again after a notebook has
    changed a global value that the function reads. Parts may share such a function. So all parts that have
    been traced are compared, and a new part may call functions that JAX has traced before.

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
            if part and (digest := digest_of(part)):
                now[category, name] = digest
        except PartError:
            if (category, name) in used:
                raise
    if now != _traced:
        jax.clear_caches()
        _traced.clear()
        _traced.update(now)
