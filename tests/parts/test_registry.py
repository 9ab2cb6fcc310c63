"""What a function's signature comes to as a part, and what two parts may share."""

import dataclasses
import functools
from pathlib import Path
from typing import Annotated, Any, Literal

import jax
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import pausejax
import pausejax.policies  # registers those of the package
from pausejax import bandit, parts
from pausejax.network import laws
from pausejax.parts import File, Parameter, PartError
from pausejax.parts.digest import digest_of
from pausejax.parts.origin import in_package

NO_FILE = File("")


def everything_allowed(
    *,
    num_clients: int,
    real: float = 0.5,
    whole: int = 3,
    flag: bool = True,
    word: str = "a",
    choice: Literal["x", "y"] = "y",
    table: File = NO_FILE,
    array: jax.Array | float = 1.0,
    bare=2,
    bounded: float = Parameter(1, "help", low=0, high=2, high_open=True, symbol="β", aliases=("b",)),
    noted: Annotated[float, Parameter(help="noted", low=0, section="network")] = 0.25,
):
    """Summary.

    More.
    """
    return num_clients, bounded


def test_annotations_and_defaults_say_kind_bounds_and_section():
    part = parts.read("policy", everything_allowed)
    found = part.parameters
    assert part.given == ("num_clients",) and part.summary == "Summary."
    kinds = {name: (p.kind, p.default) for name, p in found.items()}
    assert kinds == {
        "real": (float, 0.5),
        "whole": (int, 3),
        "flag": (bool, True),
        "word": (str, "a"),
        "choice": (str, "y"),
        "table": (File, ""),
        "array": (float, 1.0),
        "bare": (int, 2),
        "bounded": (float, 1.0),
        "noted": (float, 0.25),
    }
    assert {name for name, p in found.items() if p.traced} == {"real", "array", "bounded", "noted"}
    assert found["choice"].choices == ("x", "y") and found["noted"].section == "network"
    assert found["bounded"].allowed() == "a finite number >= 0 and < 2"
    assert found["bounded"].spellings == ("b", "β")
    on_host = parts.read("dataset", everything_allowed).parameters
    assert not any(p.traced for p in on_host.values())
    assert part.build(num_clients=4, bounded=0.5, more=1) == (4, 0.5)


def test_a_jitted_or_cached_function_is_a_part(own_parts):
    """As are functions around parts of this package, which count as the user's."""
    jitted, cached = jax.jit(lambda seen: seen.reward * 2), functools.cache(lambda *, size=3: size)
    jitted.__name__, cached.__name__ = "doubled", "made"
    assert parts.quantity(jitted) is jitted and parts.dataset(cached) is cached
    quantity, dataset = (
        parts.registered_parts().get(*key) for key in (("quantity", "doubled"), ("dataset", "made"))
    )
    assert dataset.build(size=4) == 4 and quantity.outside and dataset.outside
    assert digest_of(quantity) != digest_of(dataset)
    assert parts.registered_parts().get("policy", "pause").outside is False

    @functools.wraps(laws.lognormal)
    def slower(**arguments):
        return laws.lognormal(**arguments)

    slower.__name__ = "slower"
    parts.latency(slower)
    assert parts.registered_parts().get("latency", "slower").outside


def test_a_part_must_not_ask_for_a_part_of_a_notebook_by_its_name(own_parts):
    """Its digest would not cover the other part."""

    @parts.dataset
    def waves():
        return pausejax.data.Dataset(*2 * (np.ones((4, 2), np.float32), np.ones(4, np.float32)))

    @parts.dataset
    def again(*, of: Literal["waves", "digits"] = "waves"):
        return pausejax.data.load(of)

    def called():
        return waves()

    with pytest.raises(PartError, match="dataset again: asks for the dataset waves by its name"):
        pausejax.data.load("again")
    assert pausejax.data.load("again", of="digits").classes == 10  # the code of this package has a version
    parts.dataset(called)
    assert len(pausejax.data.load("called").train_inputs) == 4
    assert len(pausejax.data.load("waves").train_inputs) == 4


def test_a_package_behind_a_link_is_the_package(tmp_path):
    """Such as one in a home folder that is a link, on a cluster."""
    (tmp_path / "home").symlink_to(Path(pausejax.__file__).parents[1])
    assert in_package(str(tmp_path / "home" / "pausejax" / "network" / "endings.py"))
    assert not in_package(str(tmp_path / "home" / "tests" / "conftest.py"))
    assert not in_package("pausejax.network")


def test_a_decorated_function_is_called_as_it_is():
    with parts.collecting():
        called = pausejax.policy(everything_allowed)
    assert called(num_clients=3) == (3, 1)


def test_a_function_that_is_registered_again_says_the_same():
    named, counted, file = Parameter(0.5, "help", low=0, symbol="s"), Parameter(2, low=1), Parameter(File(""))

    def drawn(*, num_clients, share: "float" = named, bare=counted, table: File = file):
        return share, bare, table

    first = parts.read("policy", drawn).parameters
    with parts.collecting() as layer:
        for _ in range(3):
            pausejax.policy(drawn)
            assert layer.get("policy", "drawn").parameters == first
        pausejax.latency(drawn)
    assert layer.get("latency", "drawn").parameters["share"].symbol == "s"
    assert first["bare"].low == 1 and drawn(num_clients=1) == (0.5, 2, "")


@pytest.mark.parametrize(
    ("annotation", "default", "message"),
    [
        (list, [], "the type must be float, int, bool, str, Literal of strings or File"),
        (Any, None, "the type must be "),
        (float | str, 1.0, "the type must be "),
        (Literal[1, 2], 1, "the type must be "),
        (Literal["a"], "b", "its default 'b' must be one of a"),
        (int, 1.0, "its default 1.0 must be of type int"),
        (int, True, "its default True must be of type int"),
        (bool, 1, "its default 1 must be of type bool"),
        (float, float("nan"), "its default nan must be a finite number"),
        (float, Parameter(3.0, low=5), "its default 3.0 must be a finite number >= 5"),
        (float, Parameter(5.0, low=5, low_open=True), "its default 5.0 must be a finite number > 5"),
    ],
)
def test_what_is_no_parameter_is_named(annotation, default, message):
    def wrong(*, x=default): ...

    wrong.__annotations__ = {"x": annotation}
    with pytest.raises(PartError) as raised:
        parts.read("policy", wrong)
    line = str(raised.value)
    assert line.startswith(f"{__file__}: policy wrong: x: ") and message in line and "\n" not in line


def test_groups_are_their_fields():
    @dataclasses.dataclass(frozen=True)
    class Weights:
        near: Annotated[float, Parameter(low=0)] = 1.0
        mode: Literal["a", "b"] = "a"

    def grouped(*, weights: Weights = Weights(), objective: bandit.Objective = bandit.Objective()):  # noqa: B008
        return weights, objective

    grouped.__annotations__ = {"weights": Weights, "objective": bandit.Objective}
    part = parts.read("policy", grouped)
    fields = {field.name for field in dataclasses.fields(bandit.Objective)}
    assert set(part.parameters) == {"near", "mode"} | fields
    weights, objective = part.build(near=0.5, privacy_weight=3.0)
    assert (weights.near, weights.mode, objective.privacy_weight) == (0.5, "a", 3.0)


@dataclasses.dataclass(frozen=True)
class Window:
    decay: Annotated[float, Parameter(low=0)] = 0.9
    width: float = Parameter(3.0, low=1)
    start: int = 0


def test_the_defaults_of_a_group_are_those_of_the_given_instance():
    def grouped(*, window: Window = Window(decay=0.5, width=2.0)): ...

    def returned(*, window: Window):
        return window

    part = parts.read("policy", grouped)
    assert {name: parameter.default for name, parameter in part.parameters.items()} == {
        "decay": 0.5,
        "width": 2.0,
        "start": 0,
    }
    assert (part.parameters["decay"].low, part.parameters["width"].low) == (0, 1)
    assert dataclasses.replace(part, function=returned).build(start=4) == Window(0.5, 2.0, 4)
    assert parts.read("policy", returned).build(start=4) == Window(0.9, 3.0, 4)


def test_a_group_has_no_default_of_another_type():
    def wrong(*, window: Window = (0.5, 3.0)): ...

    with pytest.raises(PartError, match=r"policy wrong: window: its default \(0.5, 3.0\) must be a Window$"):
        parts.read("policy", wrong)


@dataclasses.dataclass(frozen=True)
class Rates:
    decay: float = 0.9


def test_two_arguments_of_a_part_have_no_parameter_of_one_name():
    def before(*, decay: float = 0.1, window: Window): ...

    def after(*, window: Window, decay: float): ...

    def groups(*, window: Window, rates: Rates): ...

    for function in (before, after, groups):
        message = f"policy {function.__name__}: decay: two arguments have a parameter of this name. Rename"
        with pytest.raises(PartError, match=message):
            parts.read("policy", function)


def test_a_name_is_taken_once_in_a_kind_of_part():
    def pause(*, num_clients): ...

    with parts.collecting(), pytest.raises(PartError, match=r"policy pause: .* has a policy of this name"):
        parts.policy(pause)
    with parts.collecting() as layer:
        parts.latency(pause)
    assert layer.get("latency", "pause").function is pause
    with pytest.raises(ValueError, match=r"policy: there is no 'pauze'; did you mean 'pause'\?"):
        parts.find("policy", "pauze")
    with pytest.raises(ValueError, match="reduce = 'least': must be one of last, mean, total, each"):
        pausejax.quantity(reduce="least")


def test_sharing_a_name_means_agreeing_in_all_but_the_help():
    one = Parameter(0.5, "one", low=0, name="x")
    assert one.agrees_with(dataclasses.replace(one, help="two"))
    for change in ({"default": 0.6}, {"low": 0.1}, {"section": "data"}, {"symbol": "x"}, {"traced": True}):
        assert not one.agrees_with(dataclasses.replace(one, **change))
    # A part that shares a parameter need not repeat its unit, but may not give it another.
    timed = dataclasses.replace(one, units="s")
    assert one.agrees_with(timed) and timed.agrees_with(one)
    assert timed.differences(dataclasses.replace(one, units="h")) == ["units"]


@given(
    low=st.floats(-1e3, 1e3, width=32),
    width=st.floats(0.125, 1e3, width=32),
    value=st.floats(-4e3, 4e3, width=32),
    low_open=st.booleans(),
    high_open=st.booleans(),
)
def test_bounds_are_what_they_say(low, width, value, low_open, high_open):
    parameter = Parameter(0.0, low=low, high=low + width, low_open=low_open, high_open=high_open)
    above = value > low if low_open else value >= low
    below = value < low + width if high_open else value <= low + width
    held = value == 0 or 1e-15 <= abs(value) <= 1e15  # by a float32, and by products of some
    assert (parameter.problem(value) is None) == (above and below and held)


@pytest.mark.parametrize("name", ["own", "given"])
def test_bind_sorts_static_from_traced(name):
    def made(*, num_clients: int, min_latency: float, own: float = 0.5, size: int = 2):
        return num_clients, min_latency, own, size

    part = parts.read("latency", made)
    bound = parts.bind(part, {"num_clients": 4, "size": 3, "unread": 1}, ["min_latency"], complete=True)
    assert bound.statics == (("num_clients", 4), ("size", 3)) and bound.traced == ("min_latency", "own")
    assert bound.build(own=1.0, min_latency=2.0, other=3) == (4, 2.0, 1.0, 3)
    assert hash(bound) == hash(parts.bind(part, {"num_clients": 4, "size": 3}, ["min_latency"]))
    with pytest.raises(PartError, match="min_latency: must have a default, or be one of"):
        parts.bind(part, {"num_clients": 4}, complete=True)
