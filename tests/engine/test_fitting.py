"""How the engine finds a chunk's width by what programs of a few widths take, and what it says of it."""

from types import SimpleNamespace

import jax
import numpy as np
import pytest

from pausejax.data.host import Sources
from pausejax.engine import engine as engines
from pausejax.engine import events
from pausejax.engine.engine import Compiled, Engine
from pausejax.engine.schedule import Unit
from pausejax.kinds import parse
from pausejax.parts import PartError
from pausejax.study.plan import make_plan
from pausejax.study.spec import SpecError

STUDY = {
    "mode": "bandit",
    "seeds": 40,
    "policy": [{"name": "random", "label": "by chance"}],
    "network": {"num_clients": 6, "clients_per_round": 2},
}


@pytest.fixture
def made(monkeypatch):
    """An engine whose programs are their widths: 100 bytes, and 10 a run."""

    class Made:
        engine = Engine(make_plan(parse(STUDY)), Sources(), device_memory=10**6)
        compiled, too_large, failure = [], 10**9, "RESOURCE_EXHAUSTED: no room"

        def compile_for(self, width):
            self.compiled.append(width)
            if width >= self.too_large:
                raise jax.errors.JaxRuntimeError(self.failure)
            return width

        def find(self, width, limit):
            self.engine.limit = limit
            return self.engine._compile(self.group, width, width)

    made = Made()
    made.compiled = []
    (made.group,) = made.engine.plan.groups
    made.simulation = SimpleNamespace(padded=lambda width: width + width % 2, placement="", data_shares=1)
    made.engine._simulations[0] = made.simulation
    monkeypatch.setattr(made.engine, "lower", lambda group, width: width)
    monkeypatch.setattr(engines, "compile_for", made.compile_for)
    monkeypatch.setattr(engines.memory, "program_memory", lambda width: 100 + 10 * width)
    return made


@pytest.mark.parametrize("whole", [1, 2, 3, 4, 5, 16, 40])
def test_a_chunk_is_the_whole_or_a_part_that_fits(made, whole):
    for limit in range(100, 100 + 10 * whole + 20, 10):
        found = made.find(whole, limit)
        assert 100 + 10 * found.width <= limit or found.width == 1
        assert found == Compiled(found.width, found.width, found.width + found.width % 2)
        parts = (-(-whole // count) for count in range(1, whole + 1))
        assert next((width for width in parts if 100 + 10 * width <= limit), 1) <= 2 * found.width
    made.compiled.clear()
    assert made.find(whole, 100 + 10 * whole).width == whole and made.compiled == [whole]


def test_one_measurement_of_a_quarter_says_how_many_parts_there_must_be(made):
    assert made.find(40, 190).width == 8 and made.compiled == [40, 10, 8]
    made.compiled.clear()
    assert made.find(3, 120).width == 2 and made.compiled == [3, 2]  # too few for a quarter: halves
    made.compiled.clear()
    assert made.find(4, 110).width == 1 and made.compiled == [4, 1, 1]


def test_what_the_compiler_finds_no_room_for_is_halved_until_it_does(made):
    made.too_large = 11
    assert made.find(40, 10**6).width == 10 and made.compiled == [40, 20, 10]
    # After that nothing is extrapolated: the size of the whole is not known.
    made.compiled.clear()
    assert made.find(40, 150).width == 5 and made.compiled == [40, 20, 10, 5]


@pytest.mark.parametrize(
    ("too_large", "failure"), [(1, "RESOURCE_EXHAUSTED: no room"), (3, "INTERNAL: what else")]
)
def test_an_error_that_no_smaller_chunk_mends_is_not_swallowed(made, too_large, failure):
    made.too_large, made.failure = too_large, failure
    with pytest.raises(jax.errors.JaxRuntimeError, match=failure[:8]):
        made.find(4, 10**6)
    assert made.compiled == ([4, 2, 1] if too_large == 1 else [4])


def said(caplog, event):
    (record,) = (record for record in caplog.records if getattr(record, "event", "") == event)
    return record.getMessage(), record.fields


def test_what_was_compiled_is_said(made, caplog):
    caplog.set_level("INFO", "pausejax")
    made.find(3, 120)
    told, fields = said(caplog, "compiled")
    assert told == "compiled by chance for 2 runs side by side in 0.0 s"
    assert (fields["policy"], fields["width"]) == ("by chance", 2) and 0 <= fields["took"] < 1
    assert fields["took"] == round(fields["took"], 3)


@pytest.mark.parametrize(
    ("shares", "wanted", "placement", "origin", "words"),
    [
        (1, None, "3 lanes", "", "by chance: 40 runs, up to 7 side by side over 2 devices, 3 lanes"),
        (1, None, "", "kept", "by chance: 40 runs, up to 7 side by side over 2 devices (kept)"),
        (2, "sharded", "3 lanes", "kept", "3 lanes, training data sharded over 2 devices: as asked (kept)"),
        (2, None, "3 lanes", "", "over 2 devices: no device has room for all of them and a run"),
    ],
)
def test_how_runs_lie_on_the_devices_is_said(made, caplog, shares, wanted, placement, origin, words):
    caplog.set_level("INFO", "pausejax")
    made.simulation.data_shares, made.simulation.placement = shares, placement
    made.engine._data_placement = wanted
    if origin:
        made.engine.origins[0] = origin
    made.engine._tell_placement(made.group, 7)
    told, fields = said(caplog, "group")
    assert told.endswith(words) and fields["origin"] == (origin or None) and fields["runs"] == 40
    assert (fields["width"], fields["devices"], fields["policy"]) == (7, 2, "by chance")
    assert fields["placement"] == (told.partition("devices, ")[2].partition(" (")[0] or None)


@pytest.mark.parametrize(("runs", "words"), [(1, "1 run"), (2, "2 runs"), (1234, "1,234 runs")])
def test_a_finished_chunk_is_said(caplog, runs, words):
    caplog.set_level("INFO", "pausejax")
    events.finished("by chance", runs)
    assert said(caplog, "chunk") == (f"finished {words} of by chance", {"policy": "by chance", "runs": runs})


def test_on_one_device_there_is_no_word_of_several(made, caplog):
    caplog.set_level("INFO", "pausejax")
    made.simulation.padded = lambda width: width
    made.engine._tell_placement(made.group, 1)
    assert said(caplog, "group")[0] == "by chance: 40 runs, up to 1 side by side on one device"


@pytest.mark.parametrize(
    ("error", "problems"),
    [
        (SpecError(["as it is"]), ["as it is"]),
        (PartError("mine.py: wrong"), ["mine.py: wrong"]),
        (ValueError("no"), ["policy by chance: no"]),
    ],
)
def test_what_is_refused_is_a_mistake_of_the_spec(made, error, problems):
    with pytest.raises(SpecError) as caught, made.engine._refusals(made.group):
        raise error
    assert list(caught.value.problems) == problems


def test_another_layout_makes_a_group_anew(made):
    made.simulation.layout = {"lanes": 3}
    made.engine.place(made.group, {"lanes": 3})
    assert made.engine.simulation(made.group) is made.simulation
    made.engine.place(made.group, {"lanes": 4})
    assert made.engine.simulation(made.group) is not made.simulation


def test_where_the_device_has_no_room_after_all_the_rest_of_a_unit_is_played_in_halves(made, monkeypatch):
    made.engine._compiled[0] = SimpleNamespace(result=lambda timeout: Compiled(8, 8, 8))
    played, closed = [], []

    def play(chunk, progress, kept):
        if len(chunk.rows) > 4:
            raise jax.errors.JaxRuntimeError("RESOURCE_EXHAUSTED")
        played.append(chunk.rows.tolist())
        return f"{len(chunk.members)} runs"

    monkeypatch.setattr(made.engine, "play", play)
    kept = SimpleNamespace(close=lambda: closed.append(1))
    unit = Unit(made.group, np.arange(7), 8)
    found = list(made.engine._simulate_unit(unit, print, lambda chunk: kept))
    assert played == [[0, 1, 2, 3], [4, 5, 6, 6]] and len(closed) == 1 and made.compiled == [4]
    assert [arrays for _, arrays in found] == ["4 runs", "3 runs"]


def test_a_program_of_another_width_is_made_once(made):
    made.engine._compiled[0] = SimpleNamespace(result=lambda timeout: Compiled("whole", 7, 8))
    assert made.engine.program(made.group, 8) == "whole" and not made.compiled
    assert [made.engine.program(made.group, 4) for _ in range(2)] == [4, 4] and made.compiled == [4]
