"""What lies on a device, by shapes alone, and what is refused before anything is computed."""

import jax
import pytest

from pausejax.data.host import DataCache
from pausejax.execution import memory
from pausejax.execution.batches import batches
from pausejax.execution.estimate import group_costs
from pausejax.execution.local import LocalExecutor
from pausejax.execution.program import GroupProgram
from pausejax.kinds import parse
from pausejax.study.plan import make_plan
from pausejax.study.simulation import DeviceBytes
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

    input_shards = 1

    def __init__(self, resident):
        self._resident = resident

    def device_bytes(self):
        return self._resident

    def sharded(self):
        return self


def executor_of(limit, file):
    plan = make_plan(parse(document(file)))
    assert len(plan.runs) == 4096
    return plan, LocalExecutor(DataCache(), device_memory=limit)


@pytest.mark.slow
def test_sixty_gigabytes_of_images_leave_room_for_few_runs_of_4096(sixty):
    plan, executor = executor_of(68 * GB, sixty)
    (cost,) = group_costs(plan, executor, compiles=False)
    data = IMAGES * (SIDE * SIDE * 3 + 4)
    parameters = 4 * (SIDE * SIDE * 3 * 32 + 32 + 32 * 16 + 16 + 16 * 10 + 10)
    shared, each = cost.resident
    assert shared["training data"] == data > 60 * GB and shared["partitions"] >= 2 * 4 * IMAGES
    assert each["parameters"] == parameters
    # Two moments and a count of every client.
    assert 2 * 30 * parameters <= each["moments"] < 2.01 * 30 * parameters
    # Eight gigabytes are left beside the data.
    assert cost.runs_that_fit == (68 * GB - sum(shared.values())) // sum(each.values()) < 10
    assert cost.width == cost.runs_that_fit * len(jax.local_devices())
    assert cost.batches >= -(-4096 // cost.width)


@pytest.mark.slow
def test_what_fits_no_device_is_refused_with_the_numbers_before_anything_is_traced(sixty, monkeypatch):
    plan, executor = executor_of(25 * GB, sixty)
    monkeypatch.setattr(GroupProgram, "lower", lambda *_: pytest.fail("traced"))
    with pytest.raises(SpecError) as caught:
        executor.prepare(plan.study, batches(plan, (), {group.key: 4096 for group in plan.groups}))
    (line,) = caught.value.problems
    assert line.startswith("policy pause: does not fit into memory: every device holds 60.2")
    assert "training data 60.21" in line and "parameters 0.0" in line and "has room for 25 GB. " in line
    assert "sharded it would hold 30.1" in line and "training data (1/2 of the inputs) 30.11" in line
    with pytest.raises(SpecError, match="does not fit"):
        group_costs(plan, executor, compiles=False)


@pytest.mark.slow
def test_sixty_gigabytes_are_shared_out_where_a_device_has_room_for_half(sixty):
    plan, executor = executor_of(40 * GB, sixty)
    (cost,) = group_costs(plan, executor, compiles=False)
    shared, each = cost.resident
    half = IMAGES // 2 * SIDE * SIDE * 3 + 4 * IMAGES
    assert shared["training data (1/2 of the inputs)"] == half and cost.runs_that_fit > 1
    assert cost.memory == 2 * sum(shared.values()) + cost.width * sum(each.values())
    assert executor.program(plan.study, plan.groups[0]).simulation.input_shards == 2


def test_a_device_holds_the_data_once_and_as_many_runs_as_fit():
    resident = DeviceBytes({"data": 60, "tables": 0}, {"state": 5, "records": 2})
    assert [memory.runs_that_fit(resident, limit) for limit in (59, 60, 66, 67, 130)] == [0, 0, 0, 1, 10]
    assert memory.runs_that_fit(DeviceBytes({}, {"state": 1}), 10) == 10
    memory.check("pause", Held(resident), 67)
    with pytest.raises(
        SpecError,
        match=r"^policy pause: does not fit .* \(data 6e-08\) for all runs and 7e-09 .* 6.6e-08 GB$",
    ):
        memory.check("pause", Held(resident), 66)


@pytest.mark.parametrize(
    ("limits", "expected"),
    [
        ({}, 4_096_000),
        ({"memory.max": "max\n"}, 4_096_000),
        ({"memory.max": "1000\n"}, 1000),
        ({"memory.max": "99999999"}, 4_096_000),
        ({"memory/memory.limit_in_bytes": "500", "memory.max": "1000"}, 500),
        # A job's own group, as without a container.
        ({"slurm/job_7/memory.max": "700", "slurm/memory.max": "900"}, 700),
        ({"slurm/job_7/memory.max": "max", "slurm/memory.max": "900"}, 900),
        ({"slurm/job_8/memory.max": "700"}, 4_096_000),
        ({"memory/old/job_7/memory.limit_in_bytes": "600", "memory.max": "1000"}, 600),
    ],
)
def test_the_hosts_memory_is_what_a_container_or_a_job_has_of_it(monkeypatch, tmp_path, limits, expected):
    written = {f"sys/fs/cgroup/{name}": text for name, text in limits.items()}
    written["proc/self/cgroup"] = "4:cpu,memory:/old/job_7\n1:name=systemd:/\n0::/slurm/job_7\n"
    for name, text in written.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    monkeypatch.setattr(memory.os, "sysconf", {"SC_PAGE_SIZE": 4096, "SC_PHYS_PAGES": 1000}.get)
    assert memory._host_memory(tmp_path) == expected


@pytest.mark.parametrize(
    ("wanted", "limit", "shares"),
    [
        ("replicated", 0, 1),
        ("sharded", 1000, 2),
        (None, 70, 1),
        (None, 69, 2),
        (None, 40, 2),
        (None, 39, 1),
    ],
)
def test_data_are_on_every_device_unless_shares_alone_leave_room(wanted, limit, shares):
    whole, half = (Held(DeviceBytes({"data": data}, {"state": 10})) for data in (60, 30))
    whole.sharded, half.input_shards = lambda: half, 2
    assert memory.place_data(whole, limit, wanted).input_shards == shares
    memory.check_data_placement(wanted)


def test_another_placement_is_refused():
    with pytest.raises(SpecError, match="data_placement = 'here': must be one of replicated, sharded"):
        memory.check_data_placement("here")


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (jax.errors.JaxRuntimeError("RESOURCE_EXHAUSTED: Out of memory"), True),
        (jax.errors.JaxRuntimeError("INTERNAL: what else"), False),
        (ValueError("RESOURCE_EXHAUSTED"), False),
    ],
)
def test_only_the_devices_own_error_says_that_memory_is_short(error, expected):
    assert memory.is_out_of_memory(error) == expected


@pytest.mark.parametrize("mode", ["bandit", "training", "ensemble"])
def test_shapes_say_what_the_state_of_a_run_comes_to(mode):
    more = {"ensemble": {"policy": [{"name": "efl_fg"}]}}.get(
        mode, {"policy": [{"name": "pause"}], "rounds": 4}
    )
    plan = make_plan(parse({"mode": mode, "seeds": 3, **more}))
    simulation = LocalExecutor(DataCache()).program(plan.study, plan.groups[0]).simulation
    state = simulation.start(plan.groups[0].runs[:2])
    held = sum(leaf.nbytes for leaf in jax.tree.leaves(state)) / 2
    each = simulation.device_bytes().per_run
    assert sum(each.values()) - each.get("records", 0) == pytest.approx(held, rel=1e-6)
