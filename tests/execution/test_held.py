"""What a process holds of studies that it has played: those of a few shapes, then none."""

import pytest

import pausejax
from pausejax import devices
from pausejax.clients.loop import start
from pausejax.kinds import KINDS


def play(num_clients):
    study = {"num_clients": num_clients, "clients_per_round": 2, "rounds": 2}
    return pausejax.simulate("random", mode="bandit", **study)


@pytest.fixture
def nothing_held(monkeypatch):
    monkeypatch.setattr(devices, "_SHAPES_HELD", 1)
    for kind in KINDS:
        devices.forget(kind.jitted)


@pytest.mark.slow
@pytest.mark.usefixtures("nothing_held")
def test_programs_of_earlier_studies_do_not_pile_up():
    held = []
    for num_clients in (3, 4, 3):
        play(num_clients)
        held.append(start._cache_size())
    assert held == [1, 2, 1]


@pytest.mark.slow
@pytest.mark.usefixtures("nothing_held")
def test_a_study_that_is_played_again_finds_its_programs(monkeypatch):
    def refuse():
        raise AssertionError("everything was dropped")

    monkeypatch.setattr(devices.jax, "clear_caches", refuse)
    for _ in range(4):
        play(3)
    assert start._cache_size() == 1
