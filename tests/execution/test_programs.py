"""A study of many groups holds few programs at a time, and its results are those of one that holds all."""

import gc
import sys
import weakref

import numpy as np
import pytest

import pausejax
from pausejax.execution import local, memory
from pausejax.execution.program import GroupProgram


@pytest.fixture
def _light():
    """What was there before is not looked at each time that something is collected."""
    gc.collect()
    gc.freeze()


@pytest.fixture
def programs(monkeypatch, _light):
    """Weak references to all that is compiled for chunks, in turn, with how many of them lived then."""
    found, make = [], GroupProgram._compile

    def noted(self, *arguments):
        compiled = make(self, *arguments)
        gc.collect()
        living = sum(one() is not None for one, _ in found)
        found.append((weakref.ref(compiled.compiled), living + 1))
        return compiled

    monkeypatch.setattr(GroupProgram, "_compile", noted)
    return found


def played(clients):
    network = {"num_clients": clients, "clients_per_round": list(range(1, clients))}
    return pausejax.simulate("random", mode="bandit", rounds=4, seeds=2, **network)


@pytest.mark.slow
def test_programs_whose_turn_is_over_go(programs, monkeypatch):
    whole = played(5)
    assert max(living for _, living in programs) == 4
    programs.clear()
    monkeypatch.setattr(local, "COMPILED_AHEAD", 1)
    monkeypatch.setattr(local, "_MOST", 1)
    fewer = played(5)
    # What is held, the one that is played, and the one that is being made.
    assert len(programs) == 4 and max(living for _, living in programs) <= 3
    for name, variable in whole.data_vars.items():
        np.testing.assert_array_equal(fewer[name].values, variable.values, err_msg=name)


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="counts mappings as Linux does")
@pytest.mark.usefixtures("_light")
def test_studies_one_after_the_other_take_no_more_and_more_mappings(monkeypatch):
    def mappings():
        gc.collect()
        with open("/proc/self/maps") as file:
            return sum(1 for _ in file)

    played(3)
    before = mappings()
    played(4)
    more = mappings()
    assert more > before + 100, "programs take no mappings here"
    monkeypatch.setattr(memory, "near_mapping_limit", lambda: True)
    played(3)
    assert mappings() < before, "a crowded process holds what it has compiled before"


def test_a_process_is_crowded_when_it_has_a_quarter_of_the_mappings_allowed(monkeypatch, tmp_path):
    maps, most = tmp_path / "maps", tmp_path / "most"
    real = memory.Path
    files = {"/proc/self/maps": maps, "/proc/sys/vm/max_map_count": most}
    monkeypatch.setattr(memory, "Path", lambda path: real(files.get(path, path)))
    maps.write_text("0-1 r\n" * 25)
    most.write_text("100\n")
    assert not memory.near_mapping_limit()
    maps.write_text("0-1 r\n" * 26)
    assert memory.near_mapping_limit()
    most.unlink()
    assert not memory.near_mapping_limit()
