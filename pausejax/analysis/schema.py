"""The schema of a result's attributes: the type, form and largest size of each.

A result may come from a stranger, who can write anything into its attributes. Therefore all code reads the
attributes of a result through `read`. `read` refuses a value of another type, length or form, with an error
of one line.
"""

import functools
import json
import math
import re
import unicodedata
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    import xarray as xr

Check = Callable[[Any], str]
"""Function from a value to a message on why the value is not allowed; "" if it is allowed."""

_WORDS, _TEXT, _MANY = 10_000, 2**24, 1_000
REDUCTIONS = (
    *("last", "at_end", "rounds_played", "total", "mean", "mean_latency"),
    *("each", "imbalance", "mean_gap", "exact_share", "itself"),
    *("lowest_tenth", "highest_tenth", "spread"),
)
"""The names of `metrics.REDUCTIONS`: the functions that reduce the values of a run to one figure."""
COLUMNS = frozenset(
    (
        *("setting", "label", "metric", "units", "x", "maximize"),
        *("mean", "low", "high", "count", "runs", "seeds", "left_out", "diverged", "infinite"),
    )
)
"""Column names of the tables of results, without policy, seed and the axes. No axis may have such a name."""
_FORMAT = re.compile(r"\.\d[efg]")


def text_problem(value: Any, longest: int = _WORDS, controls: str = "\t\n") -> str:
    if not isinstance(value, str):
        return f"must be text, not {type(value).__name__}"
    if len(value) > longest:
        return f"must have at most {longest} characters, not {len(value)}"
    # A lone surrogate (Cs) is not text. A control character (Cc) could change the state of the terminal.
    odd = next((c for c in value if unicodedata.category(c) in ("Cc", "Cs") and c not in controls), "")
    return f"must not contain control characters, but contains {odd!r}" if odd else ""


def line_problem(value: Any) -> str:
    return text_problem(value, controls="")


def name_problem(value: Any) -> str:
    if isinstance(value, str) and len(value) <= 200 and value.isidentifier():
        return ""
    return f"must be a name of letters, digits and _, not {brief(value)}"


def _format(value: Any) -> str:
    allowed = isinstance(value, str) and _FORMAT.fullmatch(value)
    return "" if allowed else f"must be a number format such as .2f, .1e or .3g, not {brief(value)}"


def _number(value: Any) -> str:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    # The value is compared before it is converted, because an integer of a thousand digits does not fit into
    # a float.
    if number and abs(value) <= 1e15 and math.isfinite(value) and value:
        return ""
    return f"must be a finite number from -1e15 to 1e15 and not 0, not {brief(value)}"


def _is(*kinds: type | None) -> Check:
    """Returns a check that a value has one of the types `kinds`; None stands for null."""
    words: dict[type | None, str] = {bool: "true or false", None: "null", int: "an integer"}
    words |= {float: "a number", str: "text"}
    allowed = tuple(type(None) if kind is None else kind for kind in kinds)
    names = " or ".join(words[kind] for kind in kinds)

    def check(value: Any) -> str:
        # Larger integers do not fit into NumPy's int64.
        small = type(value) is not int or abs(value) < 2**63
        return "" if type(value) in allowed and small else f"must be {names}, not {brief(value)}"

    return check


def _one_of(names: Sequence[str]) -> Check:
    def check(value: Any) -> str:
        if isinstance(value, str) and value in names:
            return ""
        return f"must be one of {', '.join(names)}, not {brief(value)}"

    return check


def _list(item: Check, most: int = _MANY, *, different: bool = True) -> Check:
    def check(value: Any) -> str:
        if not isinstance(value, list):
            return f"must be a list, not {brief(value)}"
        if len(value) > most:
            return f"must have at most {most} entries, not {len(value)}"
        for place, one in enumerate(value):
            if wrong := item(one):
                return f"{place}: {wrong}"
        if different and len(set(value)) < len(value):
            return "must not have an entry twice"
        return ""

    return check


def _pair(first: Check, second: Check) -> Check:
    def check(value: Any) -> str:
        if not isinstance(value, list) or len(value) != 2:
            return f"must be a list of two entries, not {brief(value)}"
        return first(value[0]) or second(value[1])

    return check


def _table(key: Check, item: Check, most: int = _MANY) -> Check:
    def check(value: Any) -> str:
        if not isinstance(value, dict):
            return f"must be a table, not {brief(value)}"
        if len(value) > most:
            return f"must have at most {most} entries, not {len(value)}"
        for name, one in value.items():
            if wrong := key(name) or item(one):
                return f"{brief(name)}: {wrong}"
        return ""

    return check


def _fields(needed: Mapping[str, Check], others: Mapping[str, Check], *, closed: bool = True) -> Check:
    """Returns a check of a table's fields.

    Args:
      needed: name and check of each field that the table must have.
      others: name and check of each field that it may have.
      closed: whether the table may have no further fields.
    """
    known = {**needed, **others}

    def check(value: Any) -> str:
        if not isinstance(value, dict):
            return f"must be a table, not {brief(value)}"
        if missing := needed.keys() - value.keys():
            return f"must have {min(missing)}, but lacks it"
        for name, one in value.items():
            if name in known and (wrong := known[name](one)):
                return f"{name}: {wrong}"
            if closed and name not in known:
                return f"{brief(name)}: is no known key; must be one of {', '.join(known)}"
        return ""

    return check


_METRIC = _fields(
    {
        "variable": name_problem,
        "reduce": _one_of(REDUCTIONS),
        "maximize": _is(bool, None),
        "units": text_problem,
        "meaning": text_problem,
    },
    {
        "learned": _is(bool),
        "label": text_problem,
        "heading": text_problem,
        "scale": _number,
        "shown": _format,
        "share": _is(bool),
        "scaled_by": _list(name_problem, 100),
        "if_negative": text_problem,
    },
)
_VERSIONS = _table(line_problem, line_problem, 100)
_RECORD = _fields(
    {"command": lambda value: text_problem(value, _TEXT), "devices": line_problem, "versions": _VERSIONS},
    {},
    closed=False,
)
_PLAIN: dict[str, Check] = {
    **dict.fromkeys(("name", "kind", "mode", "backend"), line_problem),
    "ranking": name_problem,
    "partial": line_problem,
    "format": _is(int),
    "rounds": _is(int),
    "spec": lambda value: text_problem(value, _TEXT),
}
_ABSENT = {"name": "", "spec": "not recorded", "partial": ""}
_JSON: dict[str, tuple[Check, Any]] = {
    "axes": (_list(name_problem), []),
    "metrics": (_table(name_problem, _METRIC), {}),
    "objectives": (_list(name_problem, 3), []),
    "parameters": (_table(name_problem, _pair(_list(line_problem, 20), line_problem)), {}),
    "apart": (_list(name_problem, 100), ["dataset"]),
    "variables": (_list(name_problem), []),
    "versions": (_VERSIONS, {}),
    "used_files": (_table(line_problem, line_problem, 10_000), {}),
    "made": (_list(_RECORD, 10_000, different=False), []),
}
"""Attributes that are JSON, by name: the attribute's check, and the value that stands for an absent one."""
NAMES = (*_PLAIN, *_JSON)

_WORD_LIST = _list(text_problem, 100, different=False)
_SCORE = _fields(
    {"name": name_problem, "label": text_problem, "scale": _number, "shown": _format, "maximize": _is(bool)},
    {},
)
_DIMENSION = _fields({"name": name_problem, "symbol": line_problem, "log": _is(bool)}, {})
_TRIAL = _fields(
    {
        "number": _is(int),
        "policy": line_problem,
        "values": _table(name_problem, _is(bool, int, float, str)),
        "rounds": _is(int),
        "figures": _table(name_problem, _is(int, float, None)),
        "broken": _is(bool),
    },
    {},
)
_SEARCH = _fields(
    {
        **dict.fromkeys(("name", "asked", "summary", "title"), text_problem),
        "metrics": _list(_SCORE, 100, different=False),
        "dimensions": _list(_DIMENSION, 100, different=False),
        "trials": _list(_TRIAL, 1_000_000, different=False),
        "headings": _WORD_LIST,
        "finalists": _list(_WORD_LIST, different=False),
        "runs": _list(line_problem, 10**9),
    },
    {},
    closed=False,
)


def read(result: "xr.Dataset", name: str) -> Any:
    """Returns an attribute of a result, parsed if it is JSON. The value is cached: do not change it.

    Raises:
      ValueError: the value does not fit the schema, or the attribute is absent and has no default.
    """
    if name in _PLAIN:
        value = result.attrs.get(name, _ABSENT.get(name))
        if value is None:
            raise ValueError(f"result: must have the attribute {name}, but lacks it")
        value = value.item() if isinstance(value, np.generic) else value
        if wrong := _PLAIN[name](value):
            raise ValueError(f"result: attribute {name}: {wrong}")
        return value
    text = result.attrs.get(name)
    return _JSON[name][1] if text is None else _parsed(name, text if isinstance(text, str) else None)


def search_problem(held: Any) -> str:
    """Returns a message on why the record of a search is invalid; "" if it is valid."""
    if wrong := _SEARCH(held):
        return wrong
    names = {metric["name"] for metric in held["metrics"]}
    odd = next((one for one in held["trials"] if not names <= one["figures"].keys()), None)
    return f"trials: {brief(odd['number'])}: must have a value for each metric" if odd else ""


def problem(name: str, value: Any) -> str:
    """Returns a message on why the value of a JSON attribute is invalid; "" if it is valid."""
    return _JSON[name][0](value)


@functools.lru_cache(maxsize=64)
def _parsed(name: str, text: str | None) -> Any:
    wrong = "must be text" if text is None else ""
    if text is not None:
        try:
            if len(text) > _TEXT:
                raise ValueError(f"must have at most {_TEXT} characters")
            found = json.loads(text)
            wrong = problem(name, found)
        except RecursionError:
            wrong = "must be JSON that is nested less deeply"
        except ValueError as error:
            wrong = f"must be JSON: {error}"
    if wrong:
        raise ValueError(f"result: attribute {name}: {wrong}")
    return found


def brief(value: Any) -> str:
    """Returns a short text for any value, for a message."""
    if isinstance(value, dict | list):
        return f"a {'table' if isinstance(value, dict) else 'list'} of {len(value)}"
    text = "an integer of many digits" if isinstance(value, int) and abs(value) > 1e15 else repr(value)
    return text if len(text) <= 60 else f"{text[:60]} …"
