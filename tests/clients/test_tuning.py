"""How much is timed: what a timing may cost bounds its runs, steps and samples."""

import pytest

from pausejax import kinds
from pausejax.clients import tuning
from pausejax.clients.costs import FORWARDS, flops_per_sample
from pausejax.clients.simulation import ClientSimulation
from pausejax.data.host import Sources
from pausejax.devices import runs_mesh
from pausejax.study.plan import make_plan

STUDY = {
    "rounds": 2,
    "seeds": 20,
    "network": {"num_clients": 4, "clients_per_round": 2},
    "data": {"dataset": "digits"},
    "training": {"model": "linear", "batch_size": 5, "max_steps": 100},
    "policy": [{"name": "random"}],
}


@pytest.fixture(scope="module")
def simulation():
    plan = make_plan(kinds.parse(STUDY))
    return ClientSimulation(plan, plan.groups[0], Sources())


@pytest.mark.parametrize(("steps", "runs", "samples"), [(40, 5, 240), (4, 1, 200), (1e9, 10, 2000)])
def test_a_timing_costs_what_it_may(simulation, monkeypatch, steps, runs, samples):
    """By the steps of one run that it may cost: 8 steps at most, then runs, then samples of what is left."""
    step = 2 * 5 * FORWARDS * flops_per_sample(simulation.program.learning, simulation.world.test)
    monkeypatch.setattr(tuning, "_FLOPS", {"cpu": steps * step})
    devices = runs_mesh(20).size
    assert tuning._size(simulation, 20) == (runs * devices, min(8, steps), samples)
