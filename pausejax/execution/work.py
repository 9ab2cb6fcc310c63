"""Counts a program's work from its trace: FLOPs of matrix products and convolutions, and other operations.

Nothing is compiled. A trace does not show the number of iterations of a loop or the branch that a condition
takes. The simulation states these numbers for some scopes; for other scopes a guess is used.
"""

import math
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

_TURNS = 4.0
"""The assumed number of iterations of a `while` loop for which the simulation states none."""

# The cost of one result of an operation, relative to an addition.
_WEIGHTS = {
    **dict.fromkeys(("exp", "log", "log1p", "expm1", "tanh", "logistic", "pow", "erf", "sin", "cos"), 8.0),
    **dict.fromkeys(("erf_inv", "lgamma", "digamma"), 16.0),
    **dict.fromkeys(("threefry2x32", "random_bits"), 40.0),
}
_FREE = frozenset(
    ("reshape", "squeeze", "broadcast_in_dim", "transpose", "iota", "random_wrap", "random_unwrap", "copy")
)


class Work(NamedTuple):
    """Work that one call of a program executes on each device, and the size of the program."""

    equations: float = 0.0
    """The number of equations in the whole program, each counted once."""
    operations: float = 0.0
    """The number of operations executed."""
    numbers: float = 0.0
    """The number of array entries computed, weighted by the cost of an entry.

    Entries of matrix products and convolutions are left out.
    """
    products: float = 0.0
    """FLOPs of matrix products."""
    convolutions: float = 0.0
    """FLOPs of convolutions."""

    def __add__(self, other: Any) -> "Work":
        return Work(*(one + two for one, two in zip(self, other, strict=True)))

    def times(self, turns: float) -> "Work":
        """Returns the work of `turns` executions. The number of equations does not change."""
        equations, *executed = self
        return Work(equations, *(turns * value for value in executed))


def work_of(jaxpr: Any, turns: Mapping[str, float]) -> Work:
    """Returns the work of a traced program.

    Args:
      jaxpr: the program's jaxpr.
      turns: a number for each named scope. For a loop, it is the number of iterations. For a condition, it is
        the share of calls that take its costly branch.
    """
    total = Work()
    for equation in jaxpr.eqns:
        total += _of(equation, turns)
    return total


def _of(equation: Any, turns: Mapping[str, float]) -> Work:
    name, scope = equation.primitive.name, str(equation.source_info.name_stack)
    known = next((number for place, number in turns.items() if place in scope), None)
    inner = [work_of(jaxpr, turns) for jaxpr in _inner(equation)]
    if name == "cond":
        equations = 1 + sum(work.equations for work in inner)
        cheap, *_, dear = sorted(inner, key=lambda work: sum(work[1:]))
        # Without a stated share only the cheap branch counts, since programs seldom take the costly branch.
        share = known or 0.0
        return (cheap.times(1 - share) + dear.times(share))._replace(equations=equations)
    if inner:
        repeats = {"while": _TURNS if known is None else known, "scan": equation.params.get("length")}
        whole = Work(equations=1)
        for work in inner:
            whole += work.times(repeats.get(name) or 1.0)
        return whole
    out = float(sum(math.prod(var.aval.shape) for var in equation.outvars if hasattr(var.aval, "shape")))
    if name == "dot_general":
        (contracted, _), _ = equation.params["dimension_numbers"]
        shape = equation.invars[0].aval.shape
        return Work(1, 1, products=2 * out * math.prod(shape[axis] for axis in contracted))
    if name == "conv_general_dilated":
        kernel = equation.invars[1].aval.shape
        features = kernel[equation.params["dimension_numbers"].rhs_spec[0]]
        return Work(1, 1, convolutions=2 * out * math.prod(kernel) / features)
    if name in _FREE:
        return Work(1)
    weight = _WEIGHTS.get(name, 1.0)
    if name == "sort":
        weight = 2 * math.log2(max(equation.invars[0].aval.shape[equation.params["dimension"]], 2))
    return Work(1, 1, weight * out)


def _inner(equation: Any) -> Iterator[Any]:
    """Yields the jaxprs within one operation: bodies of loops, branches, calls."""
    for value in equation.params.values():
        for item in value if isinstance(value, tuple | list) else (value,):
            jaxpr = getattr(item, "jaxpr", item)
            if hasattr(jaxpr, "eqns"):
                yield jaxpr
