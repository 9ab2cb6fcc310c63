"""Defines parts (registered functions with parameters) and their categories."""

import contextlib
import contextvars
import dataclasses
import inspect
import traceback
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any

from pausejax.parts.origin import in_package
from pausejax.parts.parameter import Parameter

_BUILDING = contextvars.ContextVar["Part | None"]("building", default=None)
"""The part whose function is being called."""


class PartError(ValueError):
    """Error in a part; the message names the part and its file."""


def first_line(error: BaseException) -> str:
    """Returns an error's message in one line, after the name of its type unless the type is ValueError."""
    text = next(iter(str(error).strip().splitlines()), "")
    return text if text and type(error) is ValueError else f"{type(error).__name__}: {text}".rstrip(": ")


@dataclasses.dataclass(frozen=True)
class Category:
    """Category of parts, such as policies or models, and how a spec names and configures its parts."""

    name: str
    key: str
    """Parameter of a spec that names a part; "" for policies, which [[policy]] tables name."""
    section: str
    """Section of a spec that holds a part's own parameters."""
    meaning: str
    inputs: tuple[str, ...] = ()
    """Names of a part's positional arguments."""
    on_device: bool = False
    """Whether parts are built inside the compiled program. Then a float is traced and a file is an array."""
    learning: bool = False
    """Whether only mode "training" uses the category."""
    own: bool = True
    """Whether a part's keyword arguments with a default become parameters of a spec."""


CATEGORIES: dict[str, Category] = {
    category.name: category
    for category in (
        Category("policy", "", "selection", "rule that selects the clients of a round", on_device=True),
        Category("model", "model", "training", "neural network that the clients train", learning=True),
        Category("task", "task", "training", "loss, metric and output layer", learning=True),
        Category("dataset", "dataset", "data", "training and test samples", learning=True),
        Category(
            "partition",
            "partition",
            "data",
            "partition of the training samples among the clients",
            inputs=("labels", "num_clients", "seed"),
            learning=True,
        ),
        Category("latency", "latency", "network", "law of the clients' latencies", on_device=True),
        Category(
            "availability",
            "availability",
            "network",
            "rule that says which clients can be selected in a round",
            on_device=True,
        ),
        Category(
            "ending",
            "ending",
            "network",
            "rule that closes a round and says which updates count",
            on_device=True,
        ),
        Category("mechanism", "mechanism", "privacy", "mechanism that protects an update", on_device=True),
        # In results, the coordinate `algorithm` is the policy's name.
        Category(
            "algorithm",
            "federated_algorithm",
            "training",
            "algorithm that says how clients train, what they send, and how the server uses it",
            on_device=True,
            learning=True,
        ),
        Category(
            "aggregator",
            "aggregator",
            "training",
            "rule that combines the updates of a cohort",
            on_device=True,
            learning=True,
        ),
        Category(
            "optimizer",
            "optimizer",
            "training",
            "optimizer of the clients' local training",
            on_device=True,
            learning=True,
        ),
        Category(
            "server_optimizer",
            "server_optimizer",
            "training",
            "optimizer of the server, which applies the combined update to the model",
            on_device=True,
            learning=True,
        ),
        Category(
            "quantity",
            "quantities",
            "",
            "number that the result records in every round",
            inputs=("seen",),
            own=False,
        ),
        Category(
            "ensemble_policy", "", "weights", "rule that selects the models sent in a round", on_device=True
        ),
        Category("regression_dataset", "dataset", "data", "samples of an ensemble study"),
    )
}


@dataclasses.dataclass(frozen=True, eq=False)
class Part:
    """Registered function with its parameters."""

    category: str
    name: str
    function: Callable[..., Any]
    parameters: Mapping[str, Parameter]
    """Parameters that the part declares: its keyword arguments with a default."""
    given: tuple[str, ...]
    """Keyword arguments without a default: parameters declared elsewhere, or values of the simulation."""
    groups: Mapping[str, Any]
    """Arguments that are frozen dataclasses of parameters."""
    file: str
    """File that defines the part."""
    notes: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    """Arguments of the decorator that registered the part."""
    arguments: Mapping[str, str] = dataclasses.field(default_factory=dict)
    """Keyword argument of the function for each parameter that has another name in the study."""
    content: str = ""
    """SHA-256 of the file of a library's part, when the part was registered."""
    is_of_use: bool = False
    """Whether a file of `use` registered the part."""
    surroundings: Callable[[], contextlib.AbstractContextManager[None]] = contextlib.nullcontext
    """Context in which the function, and those that it returns, are called.

    The modules of the part's file of `use` are in `sys.modules` then.
    """

    @property
    def reads(self) -> frozenset[str]:
        """Names of all values that the part takes."""
        return frozenset((*self.parameters, *self.given))

    def values_from(self, known: Mapping[str, Any]) -> dict[str, Any]:
        """Returns those values of `known` that the part takes, sorted by name."""
        return {name: known[name] for name in sorted(self.reads & known.keys())}

    def with_own(self, names: Collection[str]) -> "Part":
        """Returns the part with some of its parameters renamed.

        The parameter `width` of a part `first` is then `first_width`, with the symbol `first.width`. A study
        needs this if it uses two parts that define `width` differently.
        """
        own = {name: f"{self.name}_{name}" for name in self.parameters if name in names}
        parameters = {
            own.get(name, name): dataclasses.replace(
                parameter, name=own[name], symbol=f"{self.name}.{name}", aliases=()
            )
            if name in own
            else parameter
            for name, parameter in self.parameters.items()
        }
        arguments = {full: name for name, full in own.items()}
        return dataclasses.replace(self, parameters=parameters, arguments=arguments)

    @property
    def outside(self) -> bool:
        """Whether the part is defined outside this package."""
        return not in_package(self.file)

    @property
    def where(self) -> str:
        """Name of the part in messages, after its file if the part is from outside the package."""
        name = f"{self.category} {self.name}"
        return f"{self.file}: {name}" if self.outside else name

    @contextlib.contextmanager
    def blamed(self, what: str) -> Iterator[None]:
        """Turns an error of a part from outside the package into one line that names the part.

        The errors are those raised within the `with` block. Errors of the package's own parts are not
        changed, because their messages already refer to a spec.

        Args:
          what: what the part did wrong, such as "can't be built".

        Raises:
          PartError: a part from outside the package has raised any exception.
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
        """First line of the function's docstring."""
        return (inspect.getdoc(self.function) or "").partition("\n")[0]

    def build(self, *inputs: Any, **values: Any) -> Any:
        """Calls the function with those of the given values that it takes, else with its own defaults.

        Raises:
          PartError: a function from outside the package fails.
        """
        known = {name: parameter.default for name, parameter in self.parameters.items()} | values
        given = {self.arguments.get(name, name): known[name] for name in self.reads & known.keys()}
        arguments: dict[str, Any] = {}
        grouped: dict[str, dict[str, Any]] = {name: {} for name in self.groups}
        owner = {
            field.name: name for name, group in self.groups.items() for field in dataclasses.fields(group)
        }
        for name, value in given.items():
            (grouped[owner[name]] if name in owner else arguments)[name] = value
        made = {name: self.groups[name](**fields) for name, fields in grouped.items()}
        what = "fails" if CATEGORIES[self.category].inputs else "can't be built"
        outer = _BUILDING.set(self)
        try:
            with self.blamed(what), self.surroundings():
                return self.surrounded(self.function(*inputs, **arguments, **made))
        finally:
            _BUILDING.reset(outer)

    def asked_by_name(self) -> "Part":
        """Returns the part, which has been asked for by its name.

        Raises:
          PartError: a part's function asks for a part of a notebook or script.
        """
        by = _BUILDING.get()
        if by and self.outside and not (self.is_of_use or self.content):
            raise PartError(
                f"{by.where}: asks for the {self.category} {self.name} by its name. The identity of a run "
                "would not cover its content. Call its function, or put both into a file of use"
            )
        return self

    def surrounded(self, made: Any) -> Any:
        """Returns `made`. If it is a tuple, its functions will be called in the part's surroundings."""
        if not isinstance(made, tuple) or self.surroundings is contextlib.nullcontext:
            return made
        fields = [_FunctionInContext(one, self.surroundings) if _is_function(one) else one for one in made]
        return getattr(type(made), "_make", tuple)(fields)


@dataclasses.dataclass(frozen=True)
class _FunctionInContext:
    """Function that is called in a context.

    Two are equal if function and context are equal. So compiled programs are used again.
    """

    __wrapped__: Callable[..., Any]
    """The function. Python reads the signature from it."""
    surroundings: Callable[[], contextlib.AbstractContextManager[None]]

    def __call__(self, *inputs: Any, **options: Any) -> Any:
        with self.surroundings():
            return self.__wrapped__(*inputs, **options)


def _is_function(field: Any) -> bool:
    """Returns whether a field is only called. A module of flax can be called too, but must remain one."""
    return callable(field) and not any(
        str(kind.__module__).startswith("flax.") for kind in type(field).__mro__
    )
