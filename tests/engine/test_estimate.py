"""What a plan costs: a table's cells, and the numbers in it, against sums written down here."""

from types import SimpleNamespace

import jax
import pytest

from pausejax.engine import estimate
from pausejax.engine.estimate import Cost
from pausejax.engine.tuning import Decided
from pausejax.kinds import parse
from pausejax.study.plan import make_plan
from pausejax.study.simulation import Resident

STUDY = {
    "mode": "bandit",
    "rounds": 50,
    "seeds": 80,
    "network": {"num_clients": 6, "clients_per_round": 2},
    "policy": [{"name": "random"}, {"name": "fastest", "label": "quick"}],
}
RESIDENT = Resident({"data": 1000, "tables": 0}, {"state": 7, "records": 3})


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
        Resident({"data": 2_500_000, "tables": 0}, {"state": 7000}),
        1234,
        9_600_000,
        3.0,
    ),
    Cost("c (d)", 9, 40, 2, 5, Resident({"data": 0, "tables": 400_000}, {"state": 0}), 3, 4_400_000, 40.6),
]


def tables(plan, monkeypatch, costs, **options):
    asked = []

    def make(*given, **limits):
        asked.append((given, limits))
        return SimpleNamespace(limit=8 * 10**9)

    def group_costs(engine, *, compiles):
        assert compiles == options.get("compiles", False) and engine.limit == 8 * 10**9
        return costs

    monkeypatch.setattr(estimate, "Engine", make)
    monkeypatch.setattr(estimate, "group_costs", group_costs)
    found = estimate.plan_table(plan, "sources", device_memory=17, data_placement="sharded", **options)
    assert asked == [((plan, "sources"), {"device_memory": 17, "data_placement": "sharded"})]
    return found.renderables


def test_a_plan_says_what_each_program_costs_and_what_lies_on_a_device(plan, monkeypatch):
    first, costs, last, told, resident = tables(plan, monkeypatch, COSTS)
    assert first == "160 runs in 2 groups, one compilation each; axes: none; seeds: 80"
    assert cells(costs) == [
        (
            "program",
            "runs",
            "rounds",
            "chunks",
            "runs a\nchunk",
            "memory, MB\n(at least)",
            "time, s\n(rough)",
        ),
        ("a (b)", "80", "50", "6", "20", "10", "3"),
        ("c (d)", "9", "40", "2", "5", "4", "41"),
        ("left", *["right"] * 6),
    ]
    device = f"on {jax.device_count()} cpu device(s)"
    assert last.startswith(f"about 44 s after compilation, at least 10 MB at a time {device}; --compile asks")
    assert told.startswith("On each device, which has room for 8 GB;")
    assert cells(resident) == [
        ("program", "data,\nMB", "tables,\nMB", "state of\na run, kB", "runs that\nfit"),
        ("a (b)", "2.5", "0.0", "7.0", "1,234"),
        ("c (d)", "0.0", "0.4", "0.0", "3"),
        ("left", *["right"] * 4),
    ]


def test_what_the_compiler_says_has_a_column_of_its_own(plan, monkeypatch):
    compiled = [
        cost._replace(compile_seconds=seconds) for cost, seconds in zip(COSTS, (0.0, 1.25), strict=True)
    ]
    _, costs, last, *_ = tables(plan, monkeypatch, compiled, compiles=True)
    columns = cells(costs)
    assert columns[0][-3:] == ("memory, MB", "compile, s", "time, s\n(rough)")
    assert [row[-2] for row in columns[1:3]] == ["0.0", "1.2"]
    assert last == f"about 44 s after compilation, 10 MB at a time on {jax.device_count()} cpu device(s)"


@pytest.mark.parametrize("compiles", [False, True])
def test_chunks_and_memory_are_those_of_the_units_that_will_be_played(plan, monkeypatch, compiles):
    """On two devices ten runs fit each; the first group's 80 runs are three units of 26, 27 and 27."""
    devices = len(jax.local_devices())
    assert devices == 2
    done, clock = [], iter(range(50, 150, 7))
    simulation = SimpleNamespace(
        rounds=49,
        resident=lambda: RESIDENT,
        padded=lambda width: -(-width // 4) * 4 if width != 80 else 80,
        release=lambda: done.append("released"),
    )

    engine = SimpleNamespace(
        plan=plan,
        limit=1105,
        simulation=lambda group: simulation,
        check_memory=lambda group: done.append(f"checked {group.number}"),
        prepare=lambda units: done.append([len(unit.rows) for unit in units]),
        compiled=lambda group: SimpleNamespace(width=9, padded=10, call="program"),
    )
    kind_seconds = lambda plan, group, simulation, peak: peak * (1 + group.number) * simulation.rounds  # noqa: E731
    monkeypatch.setattr(estimate, "matrix_product_rate", lambda: 2.0)
    monkeypatch.setattr(
        estimate, "decide", lambda *given: Decided({0: 30, 1: 100}, {}) if given[0] is engine else 0
    )
    monkeypatch.setattr(estimate, "program_memory", lambda call: 555)
    monkeypatch.setattr(estimate, "time", SimpleNamespace(perf_counter=lambda: float(next(clock))))
    usual = plan.study.kind.seconds
    object.__setattr__(plan.study.kind, "seconds", kind_seconds)
    try:
        first, second = estimate.group_costs(engine, compiles=compiles)
    finally:
        object.__setattr__(plan.study.kind, "seconds", usual)
    assert (first.label, second.label) == ("random (random)", "fastest (quick)")
    for place, cost in enumerate((first, second)):
        assert (cost.runs, cost.rounds, cost.fitting, cost.resident) == (80, 49, 10, RESIDENT)
        assert cost.seconds == 2.0 * (1 + place) * 49
    if compiles:
        assert done == ["checked 0", [26, 27, 27], "released", "checked 1", [80], "released"]
        assert (first.chunks, second.chunks) == (9, 9) and first.lanes == second.lanes == 9
        assert first.memory == second.memory == 2 * 555 and first.compile_seconds == 7.0
    else:
        assert done == ["checked 0", "released", "checked 1", "released"]
        assert (first.chunks, second.chunks) == (6, 4) and first.lanes == second.lanes == 20
        assert first.memory == second.memory == 2 * 1000 + 20 * 10 and first.compile_seconds is None
