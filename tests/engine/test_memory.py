"""What lies on a device, by shapes alone, and what is refused before anything is computed."""

import jax
import numpy as np
import pytest

from pausejax.data.host import Sources
from pausejax.engine import memory
from pausejax.engine.engine import Engine
from pausejax.engine.estimate import group_costs
from pausejax.engine.schedule import units
from pausejax.kinds import parse
from pausejax.study.plan import make_plan
from pausejax.study.simulation import Resident
from pausejax.study.spec import SpecError

IMAGES, SIDE = 400_000, 224
GB = 10**9


def document(file):
    return {
        "use": [file],
        "rounds": 20,
        "seeds": 2,
        "sampling": {"n": 2048},
        "network": {"num_clients": 30, "clients_per_round": 5},
        "data": {"dataset": "sixty_gigabytes"},
        "training": {
            "model": "mlp",
            "persist_optimizer": True,
            "learning_rate": {"log_uniform": [0.001, 0.1]},
        },
        "policy": [{"name": "pause"}],
    }


SOURCE = f"""
import numpy as np
import pausejax
from pausejax.data import Dataset

@pausejax.dataset
def sixty_gigabytes():
    \"\"\"60 GB of images, none of which takes memory here.\"\"\"
    image, one = np.uint8(0), np.zeros((), np.int32)
    train, test = (np.broadcast_to(image, (n, {SIDE}, {SIDE}, 3)) for n in ({IMAGES}, 100))
    labels = (np.broadcast_to(one, n) for n in ({IMAGES}, 100))
    return Dataset(train, next(labels), test, next(labels), num_classes=10)
"""


@pytest.fixture
def sixty(tmp_path):
    (tmp_path / "sixty.py").write_text(SOURCE)
    return str(tmp_path / "sixty.py")


class Held:
    """A group of which nothing can be sharded."""

    data_shares = 1

    def __init__(self, resident):
        self._resident = resident

    def resident(self):
        return self._resident

    def sharded(self):
        return self


def engine_of(limit, file):
    plan = make_plan(parse(document(file)))
    assert len(plan.runs) == 4096
    return Engine(plan, Sources(), device_memory=limit)


def test_sixty_gigabytes_of_images_leave_room_for_few_runs_of_4096(sixty):
    engine = engine_of(68 * GB, sixty)
    (cost,) = group_costs(engine, compiles=False)
    data = IMAGES * (SIDE * SIDE * 3 + 4)
    parameters = 4 * (SIDE * SIDE * 3 * 32 + 32 + 32 * 16 + 16 + 16 * 10 + 10)
    shared, each = cost.resident
    assert shared["training data"] == data > 60 * GB and shared["partitions"] >= 2 * 4 * IMAGES
    assert each["parameters"] == parameters
    # Two moments and a count of every client.
    assert 2 * 30 * parameters <= each["moments"] < 2.01 * 30 * parameters
    # Eight gigabytes are left beside the data.
    assert cost.fitting == (68 * GB - sum(shared.values())) // sum(each.values()) < 10
    assert cost.lanes == cost.fitting * len(jax.local_devices())
    assert cost.chunks >= -(-4096 // cost.lanes)


def test_what_fits_no_device_is_refused_with_the_numbers_before_anything_is_traced(sixty, monkeypatch):
    engine = engine_of(25 * GB, sixty)
    monkeypatch.setattr(Engine, "lower", lambda *_: pytest.fail("traced"))
    with pytest.raises(SpecError) as caught:
        engine.prepare(units(engine.plan, (), most=4096))
    (line,) = caught.value.problems
    assert line.startswith("policy pause: does not fit: every device holds 60.2")
    assert "training data 60.21" in line and "parameters 0.0" in line and "has room for 25 GB; " in line
    assert "sharded it would hold 30.1" in line and "training data (1/2 of the inputs) 30.11" in line
    with pytest.raises(SpecError, match="does not fit"):
        group_costs(engine, compiles=False)


def test_sixty_gigabytes_are_shared_out_where_a_device_has_room_for_half(sixty):
    engine = engine_of(40 * GB, sixty)
    (cost,) = group_costs(engine, compiles=False)
    shared, each = cost.resident
    half = IMAGES // 2 * SIDE * SIDE * 3 + 4 * IMAGES
    assert shared["training data (1/2 of the inputs)"] == half and cost.fitting > 1
    assert cost.memory == 2 * sum(shared.values()) + cost.lanes * sum(each.values())
    assert engine_of(40 * GB, sixty).simulation(engine.plan.groups[0]).data_shares == 2


def test_a_device_holds_the_data_once_and_as_many_runs_as_fit():
    resident = Resident({"data": 60, "tables": 0}, {"state": 5, "records": 2})
    assert [memory.fitting(resident, limit) for limit in (59, 60, 66, 67, 130)] == [0, 0, 0, 1, 10]
    memory.check("pause", Held(resident), 67)
    with pytest.raises(
        SpecError, match=r"^policy pause: does not fit: .* \(data 6e-08\) for all runs and 7e-09"
    ):
        memory.check("pause", Held(resident), 66)


@pytest.mark.parametrize("mode", ["bandit", "training", "ensemble"])
def test_shapes_say_what_the_state_of_a_run_comes_to(mode):
    more = {"ensemble": {"policy": [{"name": "efl_fg"}]}}.get(
        mode, {"policy": [{"name": "pause"}], "rounds": 4}
    )
    plan = make_plan(parse({"mode": mode, "seeds": 3, **more}))
    simulation = Engine(plan, Sources()).simulation(plan.groups[0])
    state = simulation.start(np.arange(2))
    held = sum(leaf.nbytes for leaf in jax.tree.leaves(state)) / 2
    each = simulation.resident().each
    assert sum(each.values()) - each.get("records", 0) == pytest.approx(held, rel=1e-6)
