"""Parts by category and name, and the decorators that register them."""

import contextlib
import contextvars
import dataclasses
import sys
import types
import typing
from collections.abc import Callable, Container, Iterator
from pathlib import Path
from typing import Annotated, Any, TypeVar, overload

from pausejax.parts.files import digest_of_file
from pausejax.parts.origin import in_package, of_others
from pausejax.parts.parameter import Parameter
from pausejax.parts.part import Part, PartError
from pausejax.parts.signature import read
from pausejax.spelling import nearest

Function = TypeVar("Function", bound=Callable[..., Any])


class Parts:
    """Registry of parts by category and name.

    A registry may lie on top of another registry, whose parts it has too. It then adds parts and hides none.
    """

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
          KeyError: no part has this name.
        """
        part = self._own.get((category, name))
        if part is None and self._beneath:
            return self._beneath.get(category, name)
        if part is None:
            raise KeyError(name)
        return part

    def add(self, part: Part) -> None:
        """Registers a part. If a notebook's cell is run again, its part replaces the earlier part.

        Raises:
          PartError: another part has this name.
        """
        own = self._own.get((part.category, part.name))
        other = own or self.of(part.category).get(part.name)
        if other and not (_same_name(other, part) and (not own or _same_content(own, part))):
            raise PartError(
                f"{part.file}: {part.category} {part.name}: {other.file} has a {part.category} of this name. "
                "Choose another name. If you have moved the part, restart Python"
            )
        self._own[part.category, part.name] = part

    def merge(self, other: "Parts") -> None:
        """Adds the parts of the registry `other`, without those of the registry beneath `other`."""
        for part in other._own.values():
            self.add(part)

    def own(self) -> tuple[Part, ...]:
        """Returns the parts of this registry, without those of the registry beneath it."""
        return tuple(self._own.values())


_REGISTERED = Parts()
_COLLECTING = contextvars.ContextVar[tuple[Parts, Container[Path]]]("parts", default=(_REGISTERED, ()))


def registered_parts() -> Parts:
    """Returns all parts registered in this process, except the parts of studies' own files."""
    return _REGISTERED


def find(category: str, part: str | Part) -> Part:
    """Returns a given part unchanged, or the registered part with a given name.

    Raises:
      ValueError: no part has this name, or a part asks for a notebook's part by its name.
    """
    if isinstance(part, Part):
        return part
    known = _COLLECTING.get()[0].of(category)
    if part not in known:
        names = ", ".join(known)
        raise ValueError(f"{category}: there is no {part!r}{nearest(str(part), known)}; known: {names}")
    return known[part].asked_by_name()


@contextlib.contextmanager
def collecting(own: Container[Path] = ()) -> Iterator[Parts]:
    """Collects the parts that are registered within the `with` block in a new layer, and yields it.

    Libraries that Python imports within it register their parts for the process: it executes them once.

    Args:
      own: files whose modules do not count as libraries, wherever they are.
    """
    layer = Parts(_REGISTERED)
    token = _COLLECTING.set((layer, own))
    try:
        yield layer
    finally:
        _COLLECTING.reset(token)


def _same_name(one: Part, other: Part) -> bool:
    """Returns whether two parts may come from the same cell, run again, or the same file, executed again."""
    if one.function.__qualname__ != other.function.__qualname__:
        return False
    # A session may import a file of `use` under another name, such as with its package.
    same_file = Path(one.file).resolve() == Path(other.file).resolve()
    return same_file or one.function.__module__ == other.function.__module__


def _same_content(one: Part, other: Part) -> bool:
    """Returns whether the files of two parts have the same content, or one of the files is gone."""
    files = {path for path in (Path(one.file), Path(other.file)) if path.is_file()}
    return len({path.read_bytes() for path in files}) < 2


def _register(category: str, function: Function, **notes: Any) -> Function:
    part = read(category, function)
    layer, own = _COLLECTING.get()
    file = Path(part.file).resolve()
    of_library = not in_package(part.file) and file not in own and of_others(file) and file.is_file()
    part = dataclasses.replace(part, notes=notes, content=digest_of_file(file) if of_library else "")
    keywords = getattr(function, "__kwdefaults__", None) or {}  # a jitted function has none
    declared = {name: keywords[name] for name in part.parameters if isinstance(keywords.get(name), Parameter)}
    if declared:
        # The function gets plain defaults, so that it can be called directly. Registering it again gives the
        # same part.
        hints = typing.get_type_hints(function, include_extras=True)
        for name, parameter in declared.items():
            default = keywords[name] = part.parameters[name].default
            function.__annotations__[name] = Annotated[hints.get(name, type(default)), parameter]
    (_REGISTERED if _is_library_importing(own) else layer).add(part)
    return function


def _is_library_importing(own: Container[Path]) -> bool:
    """Returns whether the innermost module that is being imported is of this package or a library."""
    frame: types.FrameType | None = sys._getframe()
    while frame and frame.f_code.co_name != "<module>":
        frame = frame.f_back
    if not (frame and getattr(frame.f_globals.get("__spec__"), "_initializing", False)):
        return False
    file = Path(frame.f_code.co_filename).resolve()
    return file not in own and of_others(file)


def policy(function: Function) -> Function:
    """Registers a client-selection policy: a function that returns a `pausejax.policies.Policy`.

    All decorators of this module raise the same exception.

    Raises:
      PartError: the function is not a valid part, or its name is taken.
    """
    return _register("policy", function)


def model(function: Function) -> Function:
    """Registers a network: a function that returns a flax module (linen or nnx) or a pair (init, apply)."""
    return _register("model", function)


def task(function: Function) -> Function:
    """Registers a task: a function that returns a `pausejax.federated.tasks.Task`."""
    return _register("task", function)


def dataset(function: Function) -> Function:
    """Registers a data set: a function that returns a `pausejax.data.Dataset`."""
    return _register("dataset", function)


def partition(function: Function) -> Function:
    """Registers a partitioner: a function of `(labels, num_clients, seed, *, ...)` that returns a
    `Partition`."""
    return _register("partition", function)


def latency(function: Function) -> Function:
    """Registers a latency law: a function that returns a `pausejax.network.Law`."""
    return _register("latency", function)


def availability(function: Function) -> Function:
    """Registers an availability process: a function that returns a `pausejax.network.Availability`."""
    return _register("availability", function)


def ending(function: Function) -> Function:
    """Registers a rule for the end of a round: a function that returns a `pausejax.network.Ending`."""
    return _register("ending", function)


def mechanism(function: Function) -> Function:
    """Registers a privacy mechanism: a function that returns a `pausejax.privacy.Mechanism`."""
    return _register("mechanism", function)


def algorithm(function: Function) -> Function:
    """Registers a federated algorithm: a function that returns a `federated.algorithms.Algorithm`."""
    return _register("algorithm", function)


def aggregator(function: Function) -> Function:
    """Registers an aggregator of updates: a function that returns a `federated.aggregators.Aggregator`."""
    return _register("aggregator", function)


def optimizer(function: Function) -> Function:
    """Registers a local optimizer: a function that returns an `optax.GradientTransformation`.

    The learning rate times the result of the transformation is subtracted from the weights. So the
    transformation leaves out the learning rate and its minus sign. `optax.scale_by_adam()` is right, and
    `optax.adam(1.0)` would climb the loss.
    """
    return _register("optimizer", function)


def server_optimizer(function: Function) -> Function:
    """Registers a server optimizer: a function that returns an `optax.GradientTransformation`.

    The transformation receives minus the mean update in place of a gradient. Its result is added to the
    weights, so it contains the learning rate with its minus sign, as `optax.sgd(1.0)` does.
    """
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
    """Registers a quantity to record in every round: a function from a `Snapshot` to a float32 scalar.

    The result holds the quantity twice under the function's name: as a variable over runs and rounds, and as
    a metric of each run. The first line of the function's docstring describes it.

    Args:
      function: the function, if the decorator is used without arguments.
      units: the unit of the values.
      reduce: how a run's metric is computed from the values of its rounds: "last", "mean", "total" or "each".
        "last" is the value in the last round that the run played. It is NaN if this value is NaN, or if the
        run diverged. The others leave out rounds in which the value is NaN. Charts show the metric after
        every round: the value of this round for "last", and the mean or the sum of the rounds so far for
        "mean" and "total". "each" is a mean whose chart shows the value of every round.
      maximize: whether larger values are better; None if neither larger nor smaller values are better.
      label: the axis label in pictures; without a label, the quantity is not drawn against rounds.

    Raises:
      ValueError: `reduce` is unknown.
    """
    if reduce not in ("last", "mean", "total", "each"):
        raise ValueError(f"reduce = {reduce!r}: must be one of last, mean, total, each")

    def register(function: Function) -> Function:
        notes = {"units": units, "reduce": reduce, "maximize": maximize, "label": label}
        return _register("quantity", function, **notes)

    return register if function is None else register(function)


def ensemble_policy(function: Function) -> Function:
    """Registers a policy of ensemble studies: a function that returns an `ensemble.EnsemblePolicy`."""
    return _register("ensemble_policy", function)


def regression_dataset(function: Function) -> Function:
    """Registers a data set of ensemble studies: a function that returns an `ensemble.RegressionData`."""
    return _register("regression_dataset", function)
