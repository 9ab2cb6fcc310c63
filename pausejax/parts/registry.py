"""Parts by category and name, and the decorators that register them."""

import contextlib
import contextvars
import dataclasses
import difflib
import inspect
import traceback
import types
import typing
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Literal, TypeVar, Union, get_args, get_origin

import jax

from pausejax.parts.parameter import MISSING, File, Parameter

Function = TypeVar("Function", bound=Callable[..., Any])


class PartError(ValueError):
    """A part that can't be one; the message names the part and its file."""


def first_line(error: BaseException) -> str:
    """An error in one line; a ValueError speaks for itself."""
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
        """How messages name it: with its file, where it is no part of this package."""
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


class Parts:
    """Parts by category and name. A layer lies over the parts beneath it and hides none of them."""

    def __init__(self, beneath: "Parts | None" = None) -> None:
        self._beneath = beneath
        self._own: dict[tuple[str, str], Part] = {}

    def of(self, category: str) -> dict[str, Part]:
        """All parts of a category by name."""
        found = self._beneath.of(category) if self._beneath else {}
        return found | {name: part for (kind, name), part in self._own.items() if kind == category}

    def get(self, category: str, name: str) -> Part:
        """One part.

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
        """The parts of this layer alone."""
        return tuple(self._own.values())


_REGISTERED = Parts()
_COLLECTING: contextvars.ContextVar[Parts] = contextvars.ContextVar("parts", default=_REGISTERED)


def everything() -> Parts:
    """All parts that have been registered in this process, those of studies' own files left out."""
    return _REGISTERED


def find(category: str, part: str | Part) -> Part:
    """A part as it is, or the registered one of a name.

    Raises:
      ValueError: none is registered under this name; says which are, and the nearest.
    """
    if isinstance(part, Part):
        return part
    known = _COLLECTING.get().of(category)
    if part not in known:
        near = difflib.get_close_matches(str(part), known, n=1)
        hint = f" (did you mean {near[0]!r}?)" if near else ""
        raise ValueError(f"{category}: there is no {part!r}{hint}; known: {', '.join(known)}")
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
    """Whether two parts are one: a cell that was run again, or a file that was executed again."""
    functions = one.function, other.function
    if len({(function.__module__, function.__qualname__) for function in functions}) > 1:
        return False
    files = {path for path in (Path(one.file), Path(other.file)) if path.is_file()}
    return len({path.read_bytes() for path in files}) < 2


def _register(category: str, function: Function, **notes: Any) -> Function:
    part = dataclasses.replace(read(category, function), notes=notes)
    for name, parameter in part.parameters.items():
        # Called as it is, the function has plain defaults.
        keywords = function.__kwdefaults__ or {}
        if isinstance(keywords.get(name), Parameter):
            keywords[name] = parameter.default
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


def optimizer(function: Function) -> Function:
    """Registers a local optimizer: an `optax.GradientTransformation` without its learning rate out."""
    return _register("optimizer", function)


def server_optimizer(function: Function) -> Function:
    """Registers a server optimizer: an `optax.GradientTransformation` out."""
    return _register("server_optimizer", function)


def quantity(
    *, units: str = "1", reduce: str = "last", maximize: bool | None = None, label: str = ""
) -> Callable[[Function], Function]:
    """Registers a figure that is recorded in every round: what a run has `Seen` in, a float32 scalar out.

    It lands in the result as a variable over runs and rounds under the function's name, described by the
    first line of its docstring, and as a figure per run.

    Args:
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

    return register


def ensemble_policy(function: Function) -> Function:
    """Registers a policy of ensemble studies: a `pausejax.ensemble.EnsemblePolicy` out."""
    return _register("ensemble_policy", function)


def regression_dataset(function: Function) -> Function:
    """Registers a data set of ensemble studies: a `pausejax.ensemble.RegressionData` out."""
    return _register("regression_dataset", function)


def read(category: str, function: Callable[..., Any]) -> Part:
    """A function as a part of a category.

    Raises:
      PartError: it takes something by position, or an argument's annotation or default can't be read.
    """
    kind = CATEGORIES[category]
    name = getattr(function, "__name__", "")
    file = inspect.getsourcefile(inspect.unwrap(function)) or function.__module__
    where = f"{file}: {category} {name or function}"
    if not name.isidentifier():
        raise PartError(f"{where}: is no function with a name")
    try:
        signature = inspect.signature(function)
        hints = typing.get_type_hints(function, include_extras=True)
    except (NameError, TypeError, ValueError) as error:
        raise PartError(f"{where}: its signature can't be read: {error}") from None
    parameters: dict[str, Parameter] = {}
    given: list[str] = []
    groups: dict[str, Any] = {}
    positional = [a for a in signature.parameters.values() if a.kind is not a.KEYWORD_ONLY]
    for place, argument in enumerate(positional):
        if place >= len(kind.inputs) or argument.kind in (argument.VAR_POSITIONAL, argument.VAR_KEYWORD):
            takes = f"takes ({', '.join(kind.inputs)}) by position and " if kind.inputs else ""
            raise PartError(
                f"{where}: {argument}: {takes}parameters are keyword-only, as in (*, {argument.name})"
            )
    for argument in list(signature.parameters.values())[len(positional) :]:
        hint = hints.get(argument.name, MISSING)
        if isinstance(hint, type) and dataclasses.is_dataclass(hint):
            groups[argument.name] = hint
            _take_group(parameters, given, kind, where, hint)
        else:
            _take(parameters, given, kind, f"{where}: {argument.name}", argument.name, hint, argument.default)
    if parameters and not kind.own:
        raise PartError(f"{where}: {next(iter(parameters))}: a {category} has no parameters of its own")
    return Part(category, name, function, parameters, tuple(given), groups, str(file))


def parameters_of(group: Any, section: str) -> dict[str, Parameter]:
    """The parameters that the fields of a frozen dataclass are; a float is a traced one.

    Args:
      group: the dataclass.
      section: of those that do not name theirs.
    """
    found: dict[str, Parameter] = {}
    kind = Category("group", "", section, "", on_device=True)
    _take_group(found, [], kind, group.__qualname__, group)
    return found


def _take_group(
    parameters: dict[str, Parameter], given: list[str], kind: Category, where: str, group: Any
) -> None:
    hints = typing.get_type_hints(group, include_extras=True)
    for field in dataclasses.fields(group):
        default = MISSING if field.default is dataclasses.MISSING else field.default
        _take(parameters, given, kind, f"{where}: {field.name}", field.name, hints[field.name], default)


def _take(
    parameters: dict[str, Parameter],
    given: list[str],
    kind: Category,
    where: str,
    name: str,
    hint: Any,
    default: Any,
) -> None:
    """Sorts one argument in: a parameter if it has a default, else something that is given."""
    declared = default if isinstance(default, Parameter) else None
    if get_origin(hint) is typing.Annotated:
        hint, *notes = get_args(hint)
        declared = next((note for note in notes if isinstance(note, Parameter)), declared)
    plain = declared.default if isinstance(default, Parameter) and declared else default
    if plain is MISSING:
        given.append(name)
        return
    cast, choices = _type(hint, plain)
    if cast is None:
        raise PartError(
            f"{where}: {hint} = {plain!r}: a parameter is a float, int, bool, str, Literal of strings or File"
        )
    if cast is float and isinstance(plain, int) and not isinstance(plain, bool):
        plain = float(plain)
    if type(plain) is not cast:
        if cast is not File or not isinstance(plain, str):
            raise PartError(f"{where}: its default {plain!r} is no {cast.__name__}")
        plain = File(plain)
    base = declared or Parameter()
    found = dataclasses.replace(
        base,
        default=plain,
        name=name,
        section=base.section or kind.section,
        choices=base.choices or choices,
        traced=kind.on_device and cast is float,
    )
    if problem := found.problem(plain):
        raise PartError(f"{where}: its default {plain!r} {problem}")
    parameters[name] = found


def _type(hint: Any, default: Any) -> tuple[type | None, tuple[str, ...]]:
    """What an annotation means: a type, or None, and the strings that are allowed."""
    if hint is MISSING:
        hint = type(default)
    if get_origin(hint) is Literal:
        return (str, get_args(hint)) if all(isinstance(v, str) for v in get_args(hint)) else (None, ())
    if get_origin(hint) in (Union, types.UnionType):
        # As library functions have it: an array where it is traced, a number where it is not.
        members = [member for member in get_args(hint) if member is not jax.Array]
        return _type(members[0], default) if len(members) == 1 else (None, ())
    if hint is jax.Array:
        return (File, ()) if isinstance(default, File) else (float, ())
    return (hint, ()) if hint in (float, int, bool, str, File) else (None, ())
