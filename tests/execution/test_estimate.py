"""What a plan costs: the table of a small study, against sums written down here."""

import jax
import pytest

from pausejax.data.host import DataCache
from pausejax.execution.batches import batches
from pausejax.execution.estimate import group_costs, plan_table
from pausejax.execution.local import LocalExecutor
from pausejax.kinds import parse
from pausejax.study.plan import make_plan

STUDY = {
    "mode": "bandit",
    "rounds": 50,
    "seeds": 80,
    "network": {"num_clients": 6, "clients_per_round": 2},
    "policy": [{"name": "random"}, {"name": "fastest", "label": "quick"}],
}


def cells(table):
    return [(str(column.header), *map(str, column._cells)) for column in table.columns]


@pytest.mark.slow
@pytest.mark.parametrize("compiles", [False, True])
def test_a_plan_says_what_each_program_costs_and_what_lies_on_a_device(compiles):
    plan, devices = make_plan(parse(STUDY)), jax.device_count()
    executor = LocalExecutor(DataCache())
    costs = group_costs(plan, executor, compiles=compiles)
    work = batches(plan, (), {key: layout.runs for key, layout in executor.layouts(plan).items()})
    for group, cost in zip(plan.groups, costs, strict=True):
        assert cost.label == {"random": "random (random)", "fastest": "fastest (quick)"}[group.algorithm]
        assert (cost.runs, cost.rounds, cost.width) == (80, 50, work[0].largest_batch)
        assert cost.batches == sum(batch.group is group for batch in work)
        shared, each = (sum(part.values()) for part in cost.resident)
        shapes = devices * shared + 80 * each
        assert cost.memory > devices * shared if compiles else cost.memory == shapes
        assert cost.runs_that_fit == (executor.device_memory - shared) // each
    first, table, last, told, resident = plan_table(plan, DataCache(), compiles=compiles).renderables
    assert first == "160 runs in 2 groups, one compilation each; axes: none; seeds: 80"
    names, runs, rounds, *_, memory, _, _ = cells(table)
    assert names == ("group", "random (random)", "fastest (quick)")
    assert (runs, rounds) == (("runs", "80", "80"), ("rounds", "50", "50"))
    assert memory[0] == "memory, MB" if compiles else memory[0] == "memory, MB\n(at least)"
    assert f"MB on {devices} cpu device(s)" in last and ("--compile" in last) == (not compiles)
    assert told.startswith("Arrays on each device, which has room for") and cells(resident)[0] == names
