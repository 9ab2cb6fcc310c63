"""What a plan costs: a table's cells, and the numbers in it, against sums written down here."""

from types import SimpleNamespace

import jax
import pytest

from pausejax.execution import estimate
from pausejax.execution.estimate import Cost
from pausejax.execution.work import Work
from pausejax.kinds import parse
from pausejax.measured import Rates
from pausejax.study.plan import make_plan
from pausejax.study.simulation import DeviceBytes, Layout

STUDY = {
    "mode": "bandit",
    "rounds": 50,
    "seeds": 80,
    "network": {"num_clients": 6, "clients_per_round": 2},
    "policy": [{"name": "random"}, {"name": "fastest", "label": "quick"}],
}
RESIDENT = DeviceBytes({"data": 1000, "tables": 0}, {"state": 7, "records": 3})


@pytest.fixture(scope="module")
def plan():
    return make_plan(parse(STUDY))


def cells(table):
    return list(
        zip(
            *([str(column.header), *map(str, column._cells), column.justify] for column in table.columns),
            strict=True,
        )
    )


COSTS = [
    Cost(
        "a (b)",
        80,
        50,
        6,
        20,
        DeviceBytes({"data": 2_500_000, "tables": 0}, {"state": 7000}),
        1234,
        9_600_000,
        3.0,
        1.2,
    ),
    Cost(
        "c (d)",
        9,
        40,
        2,
        5,
        DeviceBytes({"data": 0, "tables": 400_000}, {"state": 0}),
        3,
        4_400_000,
        40.6,
        5.6,
    ),
]


def tables(plan, monkeypatch, costs, **options):
    asked = []

    def make(*given, **limits):
        asked.append((given, limits))
        return SimpleNamespace(device_memory=8 * 10**9)

    def group_costs(_, executor, *, compiles, store):
        assert store is None
        assert compiles == options.get("compiles", False) and executor.device_memory == 8 * 10**9
        return costs

    monkeypatch.setattr(estimate, "LocalExecutor", make)
    monkeypatch.setattr(estimate, "group_costs", group_costs)
    found = estimate.plan_table(plan, "sources", device_memory=17, data_placement="sharded", **options)
    assert asked == [(("sources",), {"device_memory": 17, "data_placement": "sharded"})]
    return found.renderables


def test_a_plan_says_what_each_program_costs_and_what_lies_on_a_device(plan, monkeypatch):
    first, costs, last, told, resident = tables(plan, monkeypatch, COSTS)
    assert first == "160 runs in 2 groups, one compilation each; axes: none; seeds: 80"
    assert cells(costs) == [
        (
            "program",
            "runs",
            "rounds",
            "batches",
            "runs a\nbatch",
            "memory, MB\n(at least)",
            "compile, s\n(rough)",
            "play, s\n(rough)",
        ),
        ("a (b)", "80", "50", "6", "20", "10", "1", "3"),
        ("c (d)", "9", "40", "2", "5", "4", "6", "41"),
        ("left", *["right"] * 7),
    ]
    device = f"on {jax.device_count()} cpu device(s)"
    assert last.startswith(
        "about 50 s, of which 7 s for compiling what is not in the cache; at least 10 MB at a time "
        f"{device}; --compile asks"
    )
    assert told.startswith("On each device, which has room for 8 GB;")
    assert cells(resident) == [
        ("program", "data,\nMB", "tables,\nMB", "state of\na run, kB", "runs that\nfit"),
        ("a (b)", "2.5", "0.0", "7.0", "1,234"),
        ("c (d)", "0.0", "0.4", "0.0", "3"),
        ("left", *["right"] * 4),
    ]


def test_what_the_compiler_says_has_a_column_of_its_own(plan, monkeypatch):
    _, costs, last, *_ = tables(plan, monkeypatch, COSTS, compiles=True)
    columns = cells(costs)
    assert columns[0][-3:] == ("memory, MB", "compile, s", "play, s\n(rough)")
    assert last.endswith(f"in the cache; 10 MB at a time on {jax.device_count()} cpu device(s)")


@pytest.mark.parametrize("compiles", [False, True])
def test_batches_and_memory_are_those_of_the_units_that_will_be_played(plan, monkeypatch, compiles):
    """On two devices ten runs fit each; the first group's 80 runs are three units of 26, 27 and 27."""
    devices = len(jax.local_devices())
    assert devices == 2
    done, clock = [], iter(range(50, 150, 7))
    simulation = SimpleNamespace(
        rounds=49,
        rounds_per_call=7,
        turns=lambda: {"rounds": 7.0},
        trace=lambda width: SimpleNamespace(jaxpr=SimpleNamespace(jaxpr=width)),
        device_bytes=lambda: RESIDENT,
        padded=lambda width: -(-width // 4) * 4 if width != 9 else 10,
    )

    program = SimpleNamespace(
        simulation=simulation,
        compiled=lambda: SimpleNamespace(width=9, call="program"),
        release=lambda: done.append("released"),
    )
    first, second = plan.groups
    executor = SimpleNamespace(
        device_memory=1105,
        program=lambda study, group: program,
        layouts=lambda plan: {first.key: Layout(30), second.key: Layout(100)},
        width=lambda study, batch, fits: batch.width,
        prepare=lambda study, work, fits: done.append([len(batch.runs) for batch in work]),
    )
    monkeypatch.setattr(
        estimate, "work_of", lambda width, turns: Work(1000 + width, 1, 2, 3, turns["rounds"])
    )
    rates = Rates(equation=1e-3, operation=0.5, number=0.25, product=0.125, convolution=1 / 16)
    monkeypatch.setattr(estimate.measured, "rates", lambda backend: rates if backend == "cpu" else None)
    monkeypatch.setattr(estimate, "program_memory", lambda call: 555)
    monkeypatch.setattr(estimate, "time", SimpleNamespace(perf_counter=lambda: float(next(clock))))
    first, second = estimate.group_costs(plan, executor, compiles=compiles)
    assert (first.label, second.label) == ("random (random)", "fastest (quick)")
    for cost in (first, second):
        assert (cost.runs, cost.rounds, cost.fitting, cost.resident) == (80, 49, 10, RESIDENT)
        # Of 49 rounds seven calls, each of a second, a half and the eighths and sixteenths of 3 and 7.
        assert cost.seconds == cost.batches * 7 * (0.5 + 0.5 + 3 / 8 + 7 / 16)
    if compiles:
        assert done == [[26, 27, 27], "released", [80], "released"]
        assert (first.batches, second.batches) == (9, 9) and first.lanes == second.lanes == 9
        assert first.memory == second.memory == 2 * 555 and first.compile_seconds == 7.0
    else:
        assert done == ["released", "released"]
        assert (first.batches, second.batches) == (6, 4) and first.lanes == second.lanes == 20
        assert first.memory == second.memory == 2 * 1000 + 20 * 10
        assert first.compile_seconds == second.compile_seconds == 1.02
