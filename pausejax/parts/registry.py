"""Parts by category and name, and the decorators that register them."""

import contextlib
import contextvars
import dataclasses
import typing
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated, Any, TypeVar, overload

from pausejax.parts.parameter import Parameter
from pausejax.parts.part import Part, PartError
from pausejax.parts.signature import read
from pausejax.spelling import nearest

Function = TypeVar("Function", bound=Callable[..., Any])


class Parts:
    """Parts by category and name. A layer lies over the parts beneath it and hides none of them."""

    def __init__(self, beneath: "Parts | None" = None) -> None:
        self._beneath = beneath
        self._own: dict[tuple[str, str], Part] = {}

    def of(self, category: str) -> dict[str, Part]:
        """Returns all parts of a category by name."""
        found = self._beneath.of(category) if self._beneath else {}
        return found | {name: part for (kind, name), part in self._own.items() if kind == category}

    def get(self, category: str, name: str) -> Part:
        """Returns one part.

        Raises:
          KeyError: there is none of this name.
        """
        part = self._own.get((category, name))
        if part is None and self._beneath:
            return self._beneath.get(category, name)
        if part is None:
            raise KeyError(name)
        return part

    def add(self, part: Part) -> None:
        """Registers a part. A cell of a notebook that is run again replaces what it has registered.

        Raises:
          PartError: the name is another part's.
        """
        other = self.of(part.category).get(part.name)
        if other and not _same_place(other, part):
            raise PartError(
                f"{part.file}: {part.category} {part.name}: the name is taken by the one in {other.file}"
            )
        self._own[part.category, part.name] = part

    def merge(self, other: "Parts") -> None:
        """Adds the parts of another layer's own."""
        for part in other._own.values():
            self.add(part)

    def own(self) -> tuple[Part, ...]:
        """Returns the parts of this layer alone."""
        return tuple(self._own.values())


_REGISTERED = Parts()
_COLLECTING: contextvars.ContextVar[Parts] = contextvars.ContextVar("parts", default=_REGISTERED)


def registered_parts() -> Parts:
    """Returns all parts that have been registered in this process, those of studies' own files left out."""
    return _REGISTERED


def find(category: str, part: str | Part) -> Part:
    """Returns a part as it is, or the registered one of a name.

    Raises:
      ValueError: none is registered under this name; says which are, and the nearest.
    """
    if isinstance(part, Part):
        return part
    known = _COLLECTING.get().of(category)
    if part not in known:
        raise ValueError(
            f"{category}: there is no {part!r}{nearest(str(part), known)}; known: {', '.join(known)}"
        )
    return known[part]


@contextlib.contextmanager
def collecting() -> Iterator[Parts]:
    """What is registered meanwhile goes into a layer of its own."""
    layer = Parts(_REGISTERED)
    token = _COLLECTING.set(layer)
    try:
        yield layer
    finally:
        _COLLECTING.reset(token)


def _same_place(one: Part, other: Part) -> bool:
    """Returns whether two parts are one: a cell that was run again, or a file that was executed again."""
    functions = one.function, other.function
    if len({(function.__module__, function.__qualname__) for function in functions}) > 1:
        return False
    files = {path for path in (Path(one.file), Path(other.file)) if path.is_file()}
    return len({path.read_bytes() for path in files}) < 2


def _register(category: str, function: Function, **notes: Any) -> Function:
    part = dataclasses.replace(read(category, function), notes=notes)
    keywords = function.__kwdefaults__ or {}
    declared = {name: keywords[name] for name in part.parameters if isinstance(keywords.get(name), Parameter)}
    if declared:
        # Called as it is, the function has plain defaults; registered once more, it says the same as before.
        hints = typing.get_type_hints(function, include_extras=True)
        for name, parameter in declared.items():
            default = keywords[name] = part.parameters[name].default
            function.__annotations__[name] = Annotated[hints.get(name, type(default)), parameter]
    _COLLECTING.get().add(part)
    return function


def policy(function: Function) -> Function:
    """Registers a client-selection policy: keyword arguments in, a `pausejax.policies.Policy` out.

    Raises:
      PartError: the function can't be one, or its name is taken; as for all of these decorators.
    """
    return _register("policy", function)


def model(function: Function) -> Function:
    """Registers a network: a flax module (linen or nnx) or a pair (init, apply) out."""
    return _register("model", function)


def task(function: Function) -> Function:
    """Registers a task: a `pausejax.federated.tasks.Task` out."""
    return _register("task", function)


def dataset(function: Function) -> Function:
    """Registers a data set: a `pausejax.data.Dataset` out."""
    return _register("dataset", function)


def partition(function: Function) -> Function:
    """Registers a partitioner: `(labels, num_clients, seed, *, ...)` in, a `Partition` out."""
    return _register("partition", function)


def latency(function: Function) -> Function:
    """Registers a latency law: a `pausejax.network.Law` out."""
    return _register("latency", function)


def availability(function: Function) -> Function:
    """Registers an availability process: a `pausejax.network.Availability` out."""
    return _register("availability", function)


def ending(function: Function) -> Function:
    """Registers how a round ends: a `pausejax.network.Ending` out."""
    return _register("ending", function)


def mechanism(function: Function) -> Function:
    """Registers a privacy mechanism: a `pausejax.privacy.Mechanism` out."""
    return _register("mechanism", function)


def algorithm(function: Function) -> Function:
    """Registers a federated algorithm: a `pausejax.federated.algorithms.Algorithm` out."""
    return _register("algorithm", function)


def aggregator(function: Function) -> Function:
    """Registers how updates become one: a `pausejax.federated.aggregators.Aggregator` out."""
    return _register("aggregator", function)


def optimizer(function: Function) -> Function:
    """Registers a local optimizer: an `optax.GradientTransformation` without its learning rate out."""
    return _register("optimizer", function)


def server_optimizer(function: Function) -> Function:
    """Registers a server optimizer: an `optax.GradientTransformation` out."""
    return _register("server_optimizer", function)


@overload
def quantity(function: Function, /) -> Function: ...


@overload
def quantity(
    *, units: str = "1", reduce: str = "last", maximize: bool | None = None, label: str = ""
) -> Callable[[Function], Function]: ...


def quantity(
    function: Function | None = None,
    /,
    *,
    units: str = "1",
    reduce: str = "last",
    maximize: bool | None = None,
    label: str = "",
) -> Function | Callable[[Function], Function]:
    """Registers a figure that is recorded in every round: what a run has `Snapshot` in, a float32 scalar out.

    It lands in the result as a variable over runs and rounds under the function's name, described by the
    first line of its docstring, and as a figure per run.

    Args:
      function: where the decorator is used without arguments.
      units: of the values.
      reduce: what makes one figure of a run's rounds: "last", "mean" or "total".
      maximize: which way is better; None where neither is.
      label: how pictures name its axis, the one of it against rounds among them; without one there is none.

    Raises:
      ValueError: an unknown `reduce`.
    """
    if reduce not in ("last", "mean", "total"):
        raise ValueError(f"reduce = {reduce!r}: must be one of last, mean, total")

    def register(function: Function) -> Function:
        notes = {"units": units, "reduce": reduce, "maximize": maximize, "label": label}
        return _register("quantity", function, **notes)

    return register if function is None else register(function)


def ensemble_policy(function: Function) -> Function:
    """Registers a policy of ensemble studies: a `pausejax.ensemble.EnsemblePolicy` out."""
    return _register("ensemble_policy", function)


def regression_dataset(function: Function) -> Function:
    """Registers a data set of ensemble studies: a `pausejax.ensemble.RegressionData` out."""
    return _register("regression_dataset", function)
