"""Checks that all devices exchange samples with each other at the same time.

A device that exchanges samples alone would wait forever.
"""

from collections.abc import Iterator

from jax.extend.core import ClosedJaxpr, Jaxpr, JaxprEqn

from pausejax.parts import PartError

_COLLECTIVE = "all_to_all"
# These loops have the same length on all devices.
_AGREED = "local_steps"


def check(advance: Jaxpr, where: str) -> None:
    """Checks that a policy computes local losses on all devices at the same time.

    Args:
      advance: the jaxpr of `loop.advance` with sharded training data.
      where: the name of the policy for the message.

    Raises:
      PartError: the policy computes local losses in a branch, or in a loop whose length may differ between
        devices.
    """
    if any(_alone(eqn) for eqn in _inside_rounds(advance)):
        raise PartError(
            f"{where}: computes local losses in a loop or a branch that may differ between devices. Sharded "
            "training data do not allow this. Use data_placement = replicated"
        )


def _inside_rounds(jaxpr: Jaxpr) -> Iterator[JaxprEqn]:
    """Yields the equations in the loop over rounds: the outermost loop, of equal length on all devices."""
    for eqn in jaxpr.eqns:
        for inner in _parts(eqn):
            yield from inner.eqns if eqn.primitive.name == "while" else _inside_rounds(inner)


def _alone(eqn: JaxprEqn, chosen: bool = False) -> bool:
    """Returns whether an equation contains an exchange between devices that one device may reach alone.

    `chosen` says whether the equation is in a loop or branch that may differ between devices.
    """
    if eqn.primitive.name == _COLLECTIVE:
        return chosen
    agreed = _AGREED in str(eqn.source_info.name_stack)
    chosen = chosen or (eqn.primitive.name in ("while", "cond") and not agreed)
    return any(_alone(inner, chosen) for part in _parts(eqn) for inner in part.eqns)


def _parts(eqn: JaxprEqn) -> Iterator[Jaxpr]:
    for value in eqn.params.values():
        for part in value if isinstance(value, tuple | list) else (value,):
            if isinstance(part, ClosedJaxpr):
                yield part.jaxpr
            elif isinstance(part, Jaxpr):
                yield part
