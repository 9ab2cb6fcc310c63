"""Reads the signature of a part's function: its parameters and their types."""

import dataclasses
import inspect
import types
import typing
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal, Union, get_args, get_origin

import jax

from pausejax.parts.origin import of_others
from pausejax.parts.parameter import MISSING, File, Parameter
from pausejax.parts.part import CATEGORIES, Category, Part, PartError

_GIVEN = frozenset(
    (
        *("input_shape", "num_outputs", "rngs", "conv_variant", "data_dir", "owner"),
        *("num_models", "num_runs", "parameters", "stream_loss"),
    )
)
"""Names of values that the simulation gives to parts. No parameter can have such a name."""


def read(category: str, function: Callable[..., Any]) -> Part:
    """Reads the signature of a function, and returns the function as a part of a category.

    Raises:
      PartError: the function has positional arguments that the category does not allow, or an argument's
        annotation or default can't be read.
    """
    kind = CATEGORIES[category]
    name = getattr(function, "__name__", "")
    file = _file_of(function)
    where = f"{file}: {category} {name or function}"
    if not name.isidentifier():
        raise PartError(f"{where}: must be a function with a name")
    try:
        signature = inspect.signature(function)
        hints = typing.get_type_hints(function, include_extras=True)
    except (NameError, TypeError, ValueError) as error:
        raise PartError(f"{where}: its signature can't be read: {error}") from error
    parameters: dict[str, Parameter] = {}
    given: list[str] = []
    groups: dict[str, Any] = {}
    positional = [a for a in signature.parameters.values() if a.kind is not a.KEYWORD_ONLY]
    for place, argument in enumerate(positional):
        if place >= len(kind.inputs) or argument.kind in (argument.VAR_POSITIONAL, argument.VAR_KEYWORD):
            takes = f"takes ({', '.join(kind.inputs)}) by position and " if kind.inputs else ""
            raise PartError(
                f"{where}: {argument}: {takes}parameters must be keyword-only, as in (*, {argument.name})"
            )
    for argument in list(signature.parameters.values())[len(positional) :]:
        hint = hints.get(argument.name, MISSING)
        if isinstance(hint, type) and dataclasses.is_dataclass(hint):
            if argument.default is not MISSING and type(argument.default) is not hint:
                wrong = f"{argument.name}: its default {argument.default!r}"
                raise PartError(f"{where}: {wrong} must be a {hint.__qualname__}")
            groups[argument.name] = hint
            _take_group(parameters, given, kind, where, hint, argument.default)
        else:
            _take(parameters, given, kind, f"{where}: {argument.name}", argument.name, hint, argument.default)
    if parameters and not kind.own:
        raise PartError(f"{where}: {next(iter(parameters))}: a {category} must have no parameters of its own")
    return Part(category, name, function, parameters, tuple(given), groups, str(file))


def _file_of(function: Callable[..., Any]) -> str:
    """Returns the file of a function, or its module.

    A decorated function may be the user's or a library's, and so may its decorators. The user's count.
    """
    decorated: list[Any] = []
    innermost = inspect.unwrap(function, stop=decorated.append)
    functions = [one for one in (innermost, *reversed(decorated)) if isinstance(one, types.FunctionType)]
    files = [inspect.getsourcefile(one) or str(one.__globals__.get("__name__")) for one in functions]
    of_user = (file for file in files if not of_others(Path(file).resolve()))
    return next(of_user, files[0] if files else function.__module__)


def parameters_of(group: Any, section: str) -> dict[str, Parameter]:
    """Returns the parameters that the fields of a frozen dataclass declare; a float parameter is traced.

    Args:
      group: the dataclass.
      section: the section of parameters that do not name a section.
    """
    found: dict[str, Parameter] = {}
    kind = Category("group", "", section, "", on_device=True)
    _take_group(found, [], kind, group.__qualname__, group)
    return found


def _take_group(
    parameters: dict[str, Parameter],
    given: list[str],
    kind: Category,
    where: str,
    group: Any,
    instance: Any = MISSING,
) -> None:
    """Adds the fields of a dataclass. Their defaults are those of the class, or the values of an instance."""
    hints = typing.get_type_hints(group, include_extras=True)
    for field in dataclasses.fields(group):
        default = MISSING if field.default is dataclasses.MISSING else field.default
        if instance is not MISSING:
            value = getattr(instance, field.name)
            declared = isinstance(default, Parameter) and not isinstance(value, Parameter)
            default = dataclasses.replace(default, default=value) if declared else value
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
    """Adds one argument to `parameters` if it has a default, else to `given`."""
    if name in parameters or name in given:
        raise PartError(f"{where}: two arguments have a parameter of this name. Rename one of them")
    declared = default if isinstance(default, Parameter) else None
    if get_origin(hint) is typing.Annotated:
        hint, *notes = get_args(hint)
        declared = next((note for note in notes if isinstance(note, Parameter)), declared)
    plain = declared.default if isinstance(default, Parameter) and declared else default
    if plain is MISSING:
        given.append(name)
        return
    if name in _GIVEN:
        raise PartError(f"{where}: the simulation gives a value of this name. Remove the default {plain!r}")
    cast, choices = _type(hint, plain)
    if cast is None:
        raise PartError(
            f"{where}: {hint} = {plain!r}: the type must be float, int, bool, str, Literal of strings or File"
        )
    if cast is float and isinstance(plain, int) and not isinstance(plain, bool):
        plain = float(plain)
    if type(plain) is not cast:
        if cast is not File or not isinstance(plain, str):
            raise PartError(f"{where}: its default {plain!r} must be of type {cast.__name__}")
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
    """Returns the type of an annotation and the allowed strings; the type is None if it is not supported."""
    if hint is MISSING:
        hint = type(default)
    if get_origin(hint) is Literal:
        return (str, get_args(hint)) if all(isinstance(v, str) for v in get_args(hint)) else (None, ())
    if get_origin(hint) in (Union, types.UnionType):
        # The annotation of library functions: an array if the value is traced, else a number.
        members = [member for member in get_args(hint) if member is not jax.Array]
        return _type(members[0], default) if len(members) == 1 else (None, ())
    if hint is jax.Array:
        return (File, ()) if isinstance(default, File) else (float, ())
    return (hint, ()) if hint in (float, int, bool, str, File) else (None, ())
