"""What a part is, and the categories that there are."""

import contextlib
import dataclasses
import inspect
import traceback
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from pausejax.parts.parameter import Parameter


class PartError(ValueError):
    """A part that can't be one; the message names the part and its file."""


def first_line(error: BaseException) -> str:
    """Returns an error in one line; a ValueError speaks for itself."""
    text = next(iter(str(error).strip().splitlines()), "")
    return text if text and type(error) is ValueError else f"{type(error).__name__}: {text}".rstrip(": ")


@dataclasses.dataclass(frozen=True)
class Category:
    """One kind of part."""

    name: str
    key: str
    """The parameter of a spec that names one; "" for policies, which stand in [[policy]] tables."""
    section: str
    """Where a part's own parameters stand in a spec."""
    meaning: str
    inputs: tuple[str, ...] = ()
    """What a part takes by position."""
    on_device: bool = False
    """Whether it is built inside the compiled program, so that a float is traced and a file an array."""
    learning: bool = False
    """Whether mode "bandit" has no use for it."""
    own: bool = True
    """Whether its keyword arguments with a default become parameters of a spec."""


CATEGORIES: dict[str, Category] = {
    category.name: category
    for category in (
        Category("policy", "", "selection", "who takes part in a round", on_device=True),
        Category("model", "model", "training", "the network that the clients train", learning=True),
        Category("task", "task", "training", "loss, metric and head", learning=True),
        Category("dataset", "dataset", "data", "the samples", learning=True),
        Category(
            "partition",
            "partition",
            "data",
            "who owns which sample",
            inputs=("labels", "num_clients", "seed"),
            learning=True,
        ),
        Category("latency", "latency", "network", "the law of the clients' latencies", on_device=True),
        Category("availability", "availability", "network", "who can be selected", on_device=True),
        Category("ending", "ending", "network", "when a round closes, and who counts", on_device=True),
        Category("mechanism", "mechanism", "privacy", "what protects an update", on_device=True),
        # Results have a coordinate `algorithm`: the policy's.
        Category(
            "algorithm",
            "federated_algorithm",
            "training",
            "how clients train, what they send, and what the server makes of it",
            on_device=True,
            learning=True,
        ),
        Category(
            "aggregator",
            "aggregator",
            "training",
            "how the updates of a cohort become one",
            on_device=True,
            learning=True,
        ),
        Category("optimizer", "optimizer", "training", "the local optimizer", on_device=True, learning=True),
        Category(
            "server_optimizer",
            "server_optimizer",
            "training",
            "what the server does with the mean update",
            on_device=True,
            learning=True,
        ),
        Category(
            "quantity", "quantities", "", "what is recorded in every round", inputs=("seen",), own=False
        ),
        Category("ensemble_policy", "", "weights", "which models are sent in a round", on_device=True),
        Category("regression_dataset", "dataset", "data", "the samples of an ensemble study"),
    )
}


@dataclasses.dataclass(frozen=True, eq=False)
class Part:
    """A registered function and its parameters."""

    category: str
    name: str
    function: Callable[..., Any]
    parameters: Mapping[str, Parameter]
    """Those that it declares: with a default."""
    given: tuple[str, ...]
    """Keyword arguments without a default: parameters of others, or what the simulation knows."""
    groups: Mapping[str, Any]
    """Arguments that are frozen dataclasses of parameters."""
    file: str
    """Where it comes from."""
    notes: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    """What its registration says of it besides."""

    @property
    def reads(self) -> frozenset[str]:
        """Every name that it wants a value of."""
        return frozenset((*self.parameters, *self.given))

    @property
    def outside(self) -> bool:
        """Whether it is no part of this package."""
        return not self.function.__module__.startswith("pausejax.")

    @property
    def where(self) -> str:
        """The name of the part in messages; a part from outside the package has its file before it."""
        name = f"{self.category} {self.name}"
        return f"{self.file}: {name}" if self.outside else name

    @contextlib.contextmanager
    def blamed(self, what: str) -> Iterator[None]:
        """Within it, an error of a part from outside the package becomes one line that names the part.

        Errors of the package's own parts pass: they speak of a spec already.

        Args:
          what: of the part, as "can't be built".

        Raises:
          PartError: in place of any other exception.
        """
        try:
            yield
        except PartError:
            raise
        except Exception as error:
            if not self.outside:
                raise
            lines = [
                frame.lineno
                for frame in traceback.extract_tb(error.__traceback__)
                if frame.filename == self.file
            ]
            place = f" (line {lines[-1]})" if lines else ""
            raise PartError(f"{self.where}: {what}: {first_line(error)}{place}") from error

    @property
    def summary(self) -> str:
        """The first line of its docstring."""
        return (inspect.getdoc(self.function) or "").partition("\n")[0]

    def build(self, *inputs: Any, **values: Any) -> Any:
        """Calls the function with what it wants of some values; the rest is left out.

        Raises:
          PartError: it is from outside the package and can't be built.
        """
        arguments: dict[str, Any] = {}
        grouped: dict[str, dict[str, Any]] = {name: {} for name in self.groups}
        owner = {
            field.name: name for name, group in self.groups.items() for field in dataclasses.fields(group)
        }
        for name in self.reads & values.keys():
            (grouped[owner[name]] if name in owner else arguments)[name] = values[name]
        made = {name: self.groups[name](**fields) for name, fields in grouped.items()}
        with self.blamed("fails" if CATEGORIES[self.category].inputs else "can't be built"):
            return self.function(*inputs, **arguments, **made)
