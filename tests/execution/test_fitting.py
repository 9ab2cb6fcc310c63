"""How the engine finds a chunk's width by what programs of a few widths take, and what it says of it."""

from types import SimpleNamespace

import jax
import pytest

from pausejax.data.host import DataCache
from pausejax.execution import program as programs
from pausejax.execution.program import Executable, GroupProgram
from pausejax.kinds import parse
from pausejax.parts import PartError
from pausejax.study.plan import make_plan
from pausejax.study.simulation import Layout
from pausejax.study.spec import SpecError

STUDY = {
    "mode": "bandit",
    "seeds": 40,
    "policy": [{"name": "random", "label": "by chance"}],
    "network": {"num_clients": 6, "clients_per_round": 2},
}


@pytest.fixture
def made(monkeypatch):
    """A group whose programs are their widths: 100 bytes, and 10 a run."""
    plan = make_plan(parse(STUDY))
    made = GroupProgram(plan.study, plan.groups[0], DataCache(), device_memory=10**6)
    made.simulation = SimpleNamespace(
        padded=lambda width: width + width % 2, layout=Layout(40), input_shards=1
    )
    made.compiled_widths, made.too_large, made.failure = [], 10**9, "RESOURCE_EXHAUSTED: no room"

    def compile_for(width):
        made.compiled_widths.append(width)
        if width >= made.too_large:
            raise jax.errors.JaxRuntimeError(made.failure)
        return width

    monkeypatch.setattr(made, "lower", lambda width: width)
    monkeypatch.setattr(programs, "compile_for", compile_for)
    monkeypatch.setattr(programs.memory, "program_memory", lambda width: 100 + 10 * width)
    return made


def fit(made, width, limit):
    made.device_memory = limit
    return made._compile(width, width)


@pytest.mark.parametrize("whole", [1, 2, 3, 4, 5, 16, 40])
def test_a_chunk_is_the_whole_or_a_part_that_fits(made, whole):
    for limit in range(100, 100 + 10 * whole + 20, 10):
        found = fit(made, whole, limit)
        assert 100 + 10 * found.width <= limit or found.width == 1
        assert found == Executable(found.width, found.width)
        parts = (-(-whole // count) for count in range(1, whole + 1))
        assert next((width for width in parts if 100 + 10 * width <= limit), 1) <= 2 * found.width
    made.compiled_widths.clear()
    assert fit(made, whole, 100 + 10 * whole).width == whole and made.compiled_widths == [whole]


def test_what_a_program_takes_says_how_many_parts_there_must_be(made):
    for width, limit, widths in ((40, 190, [40, 14, 7]), (3, 120, [3, 2]), (4, 110, [4, 2, 1])):
        made.compiled_widths.clear()
        assert fit(made, width, limit).width == widths[-1] and made.compiled_widths == widths


def test_what_the_compiler_finds_no_room_for_is_halved_until_it_does(made):
    made.too_large = 11
    assert fit(made, 40, 10**6).width == 10 and made.compiled_widths == [40, 20, 10]
    made.compiled_widths.clear()
    assert fit(made, 40, 150).width == 5 and made.compiled_widths == [40, 20, 10, 5]


@pytest.mark.parametrize(
    ("too_large", "failure"), [(1, "RESOURCE_EXHAUSTED: no room"), (3, "INTERNAL: what else")]
)
def test_an_error_that_no_smaller_chunk_mends_is_not_swallowed(made, too_large, failure):
    made.too_large, made.failure = too_large, failure
    with pytest.raises(jax.errors.JaxRuntimeError, match=failure[:8]):
        fit(made, 4, 10**6)
    assert made.compiled_widths == ([4, 2, 1] if too_large == 1 else [4])


@pytest.mark.parametrize(
    ("error", "problems"),
    [
        (SpecError(["as it is"]), ["as it is"]),
        (PartError("mine.py: wrong"), ["mine.py: wrong"]),
        (ValueError("no"), ["policy by chance: no"]),
    ],
)
def test_what_is_refused_is_a_mistake_of_the_spec(made, error, problems):
    with pytest.raises(SpecError) as caught, made._refusals():
        raise error
    assert list(caught.value.problems) == problems
