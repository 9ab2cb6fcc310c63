"""What is asked before a study is played, and who answers: with a made-up engine and made-up timings."""

from types import SimpleNamespace

import jax
import numpy as np
import pytest

from pausejax import measured
from pausejax.engine import kept, tuning
from pausejax.engine.tuning import Answer, Asked, Decided, Question
from pausejax.study.trials import Found, Trials, Variants


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("PAUSEJAX_CACHE_DIR", str(tmp_path))


def group(number, members=1, algorithm="random", **static):
    return SimpleNamespace(number=number, members=range(members), algorithm=algorithm, static=static)


def question(key="lanes", groups=(), trials=None, sound=lambda layout: layout["lanes"] > 0):
    return Question(key, groups, lambda: {"lanes": 16}, trials, sound)


def trials():
    """One lane less takes a second less."""
    return Trials({"lanes": 4}, {"lanes": (1, 2, 3, 4)}, lambda layout: float(layout["lanes"]))


BEGAN, BEFORE, NOW, NEVER = (
    "as the study began",
    "measured on such a device",
    "measured on this",
    "not measured",
)


@pytest.mark.parametrize(
    ("settled", "believed", "there", "again", "seconds", "lanes", "source"),
    [
        (7, True, 5, False, 60.0, 7, BEGAN),
        (7, True, 5, True, 60.0, 7, BEGAN),
        (0, True, 5, False, 60.0, 5, BEFORE),
        (None, True, 5, False, 60.0, 5, BEFORE),
        (None, True, 5, True, 60.0, 1, NOW),
        (None, False, 5, False, 60.0, 1, NOW),
        (None, True, 0, False, 60.0, 1, NOW),
        (None, True, None, False, 60.0, 1, NOW),
        (None, True, None, False, 0.0, 16, NEVER),
    ],
)
def test_who_answers(settled, believed, there, again, seconds, lanes, source):
    began = {} if settled is None else {tuning.place("lanes"): {"lanes": settled}}
    if there is not None:
        kept.write("lanes", {"lanes": there})
    answer = tuning._answer(
        question(groups=["g"], trials=trials), Asked(began, believed), seconds, again=again
    )
    assert answer.layout == {"lanes": lanes} and answer.source.startswith(source) and answer.groups == ["g"]
    assert (answer.found is not None) == (source == NOW)
    if source == NOW:
        assert kept.read("lanes") == {"lanes": 1} and len(answer.found.tried) == 4
        assert float(answer.source.split()[-2]) < 5


def test_what_cannot_be_tried_is_not_measured():
    assert tuning._answer(question(), Asked(), 60.0, again=True).source == NEVER


EXPECTED = {0: 100.0, 1: 300.0, 2: 50.0}
"""Seconds that the groups of a study are expected to take."""


@pytest.fixture
def engine(monkeypatch):
    monkeypatch.setattr(tuning, "matrix_product_rate", lambda: 1e9)

    def seconds(plan, group, simulation, peak):
        assert simulation == f"simulation {group.number}" and peak == 1e9 and plan.study.kind is kind
        return EXPECTED[group.number]

    kind = SimpleNamespace(seconds=seconds)
    plan = SimpleNamespace(study=SimpleNamespace(kind=kind))
    return SimpleNamespace(plan=plan, simulation=lambda group: f"simulation {group.number}")


def test_a_tenth_of_the_time_is_shared_out_by_what_the_groups_take(engine):
    a, b, c = (group(number) for number in range(3))
    questions = [
        question("both", [a, b], trials),
        question("b", [b], trials),
        question("c", [c], trials),  # its share is below 3 s
        question("nothing to try", [c]),
    ]

    def allowed(*asked, again=False):
        return tuning._seconds(engine, questions, Asked(*asked, seconds=None), again=again)

    weights = {"both": 400, "b": 300, "c": 50}
    assert allowed() == {key: pytest.approx(45 * weights[key] / 750) for key in ("both", "b", "c")}
    kept.write("b", {"lanes": 1})
    assert allowed() == {key: pytest.approx(45 * weights[key] / 450) for key in ("both", "c")}
    assert allowed(again=True).keys() == weights.keys()
    settled = {tuning.place("both"): {}}
    assert allowed(settled) == {"c": pytest.approx(45)}
    assert allowed({**settled, tuning.place("c"): {}}) == {}
    assert tuning._seconds(engine, questions, Asked(seconds=7.0), again=False) == {
        q.key: 7.0 for q in questions
    }


@pytest.mark.parametrize(
    ("seconds", "allowed"), [(29.9, {}), (30.0, {"a": 3.0}), (590.0, {"a": 59.0}), (601.0, {"a": 60.0})]
)
def test_measuring_takes_three_seconds_or_none_and_a_minute_at_most(engine, monkeypatch, seconds, allowed):
    monkeypatch.setitem(EXPECTED, 0, seconds)
    found = tuning._seconds(engine, [question("a", [group(0)], trials)], Asked(seconds=None), again=False)
    assert found == pytest.approx(allowed)


def test_a_study_of_no_time_divides_by_nothing(engine, monkeypatch):
    monkeypatch.setitem(EXPECTED, 0, 0.0)
    assert (
        tuning._seconds(engine, [question("a", [group(0)], trials)], Asked(seconds=None), again=False) == {}
    )


def test_one_question_is_asked_for_all_groups_that_learn_alike_and_only_of_whole_data():
    """Groups 0 and 1 learn alike, 2 and 3 too, of which one has a share of its data; 4 learns nothing."""
    keys, shares = {0: "x", 1: "x", 2: "y", 3: "y", 5: "z"}, {0: 1, 1: 1, 2: 1, 3: 2, 5: 2}

    def variants(plan, group, sources):
        assert (plan, sources) == (engine.plan, "sources")
        return Variants(keys[group.number], trials, bool) if group.number in keys else None

    kind = SimpleNamespace(variants=variants)
    engine = SimpleNamespace(
        plan=SimpleNamespace(study=SimpleNamespace(kind=kind)),
        sources="sources",
        simulation=lambda group: SimpleNamespace(
            layout={"lanes": 10 + group.number}, data_shares=shares[group.number]
        ),
    )
    found = tuning._of_learning(engine, [group(number) for number in range(6)])
    assert [(q.key, [g.number for g in q.groups], q.usual()) for q in found] == [
        ("x", [0, 1], {"lanes": 10}),
        ("y", [2, 3], {"lanes": 12}),
        ("z", [5], {"lanes": 15}),
    ]
    assert [q.trials for q in found] == [trials, None, None]


class Alone:
    """An engine for one group: its study, and what it was asked to play."""

    limit = 100

    def __init__(self, *, eval_every=4, rounds=50, rounds_per_call=25, shape=("linear", 10), mode="bandit"):
        kind = SimpleNamespace(shape=lambda values: list(shape))
        parts = SimpleNamespace(sources=[])
        study = SimpleNamespace(kind=kind, mode=mode, eval_every=eval_every, parts=parts)
        run = SimpleNamespace(values={}, policy="random")
        self.plan = SimpleNamespace(study=study, runs_of=lambda group: [run])
        self.rounds, self.rounds_per_call, self.lowered = rounds, rounds_per_call, []

    def simulation(self, group):
        return self

    def padded(self, width):
        return -(-width // 4) * 4

    def lower(self, group, width):
        self.lowered.append(width)
        return width

    def arguments(self, rows):
        return "world", rows

    def start(self, rows):
        return f"state of {len(rows)}"


def test_a_question_of_runs_is_the_same_for_the_same_programs():
    def key(members=20, algorithm="random", static=(), **study):
        return tuning._runs_key(Alone(**study), group(0, members, algorithm, **dict(static)))

    usual = key()
    others = [
        key(algorithm="pause"),
        key(static=[("m", 2)]),
        key(mode="training"),
        key(eval_every=5),
        key(shape=("mlp", 10)),
    ]
    assert usual.startswith("runs ") and len({usual, *others}) == 6
    # Of runs the nearest power of four counts, up to the most that are tried.
    for same in ((8, 20, 31), (32, 127), (128, 511), (2**15, 10**6)):
        assert len({key(members) for members in same}) == 1
    assert len({key(members) for members in (7, 8, 32, 128, 2**15 - 1, 2**15)}) == 6


@pytest.mark.parametrize(("members", "asked"), [(64, False), (65, True)])
def test_runs_are_tried_where_there_are_many(members, asked):
    (found,) = tuning._of_runs(Alone(), [group(3, members)])
    assert (found.trials is not None) == asked and [g.number for g in found.groups] == [3]
    assert found.usual() == {"runs": measured.most_runs("cpu")}
    assert not asked or 256 in found.trials().options["runs"]


def test_numbers_of_runs_are_tried_up_to_all_of_them():
    start = measured.most_runs("cpu")
    found = tuning._trials(Alone(), group(0, 100))
    assert found.start == {"runs": start} and found.options == {"runs": sorted({16, 64, 256, start})}
    assert found.options["runs"][0] == 16
    assert max(tuning._trials(Alone(), group(0, 256)).options["runs"]) == max(256, start)
    assert 4**8 in tuning._trials(Alone(), group(0, 10**6)).options["runs"]


@pytest.mark.parametrize(
    ("study", "rounds"),
    [({}, 4), ({"eval_every": 40}, 25), ({"eval_every": 40, "rounds_per_call": 60, "rounds": 30}, 30)],
)
@pytest.mark.parametrize(("runs", "width"), [(16, 16), (64, 50)])
def test_a_round_of_a_run_is_timed_off_whole_programs(monkeypatch, study, rounds, runs, width):
    engine = Alone(**study)
    played = []

    def best_of(call, prepare):
        played.append(call(*prepare()))
        return 6.0

    def compile_for(lowered):
        return lambda world, rows, state, first, last: (world, rows, state, int(first), int(last))

    monkeypatch.setattr(tuning, "compile_for", compile_for)
    monkeypatch.setattr(tuning, "program_memory", lambda call: 100)
    monkeypatch.setattr(tuning, "best_of", best_of)
    seconds = tuning._trials(engine, group(0, 50)).seconds({"runs": runs})
    assert seconds == pytest.approx(6 / (width * rounds)) and engine.lowered == [width]
    ((world, rows, state, first, last),) = played
    padded = engine.padded(width)
    np.testing.assert_array_equal(rows, [*range(width), *[width - 1] * (padded - width)])
    assert (world, state, first, last) == ("world", f"state of {padded}", 1, rounds)
    monkeypatch.setattr(tuning, "program_memory", lambda call: 101)
    assert tuning._trials(engine, group(0, 50)).seconds({"runs": runs}) == np.inf


def test_what_runs_out_of_memory_takes_for_ever_and_other_errors_are_not_swallowed(monkeypatch):
    def failing(message):
        def compile_for(lowered):
            raise jax.errors.JaxRuntimeError(message)

        monkeypatch.setattr(tuning, "compile_for", compile_for)
        return tuning._trials(Alone(), group(0, 50)).seconds({"runs": 16})

    assert failing("RESOURCE_EXHAUSTED: too much") == np.inf
    with pytest.raises(jax.errors.JaxRuntimeError, match="INTERNAL"):
        failing("INTERNAL: what else")


def test_the_table_shows_all_that_was_tried_as_parts_of_the_usual():
    plan = SimpleNamespace(runs_of=lambda group: [SimpleNamespace(policy=f"policy {group.number}")])
    tried = {(4, "a"): 2e-3, (2, "a"): 1e-3, (2, "b"): 1.5e-3}
    found = Found({"lanes": 2, "conv": "a"}, tried)
    answers = {
        "learning": Answer([group(0), group(1), group(0)], found.layout, NOW, found),
        "runs": Answer([group(1)], {"runs": 64}, BEGAN),
        "free": Answer([group(2)], {"runs": 16}, NOW, Found({"runs": 16}, {(16,): 0.0})),
    }
    table = tuning.table(plan, Decided({}, answers))
    assert [column.justify for column in table.columns] == ["left", "left", "right", "right"]
    cells = list(zip(*(column._cells for column in table.columns), strict=True))
    assert cells == [
        ("policy 0, policy 1", "lanes 4, conv a", "2,000.0", "1.00"),
        ("policy 0, policy 1", "[bold]lanes 2, conv a", "1,000.0", "0.50"),
        ("policy 0, policy 1", "lanes 2, conv b", "1,500.0", "0.75"),
        ("policy 1", "runs 64", "", BEGAN),
        ("policy 2", "[bold]runs 16", "0.0", ""),
    ]


@pytest.mark.parametrize(
    ("most", "again"), [(None, {}), (None, {"again": True}), (7, {}), (7, {"again": True})]
)
def test_what_is_decided_holds_for_every_group(monkeypatch, most, again):
    """Two groups learn alike; only for the first one's runs side by side there is time to measure."""
    groups = [group(0), group(1)]
    learning = [question("learning", groups, trials)]

    def of_runs(number):
        def measured():
            return Trials({"runs": 5}, {"runs": (5,)}, lambda layout: 1.0)

        return Question(f"runs {number}", [groups[number]], lambda: {"runs": 10 + number}, measured, bool)

    widths = [of_runs(0), of_runs(1)]
    placed, checked = [], []
    engine = SimpleNamespace(
        check_memory=lambda group: checked.append(group.number),
        place=lambda group, layout: placed.append((group.number, layout)),
        origins={},
    )
    asked = Asked(seconds=None, most=most)

    def seconds(*given, again):
        keys = ["learning", *(["runs 0", "runs 1"] if most is None else [])]
        assert given[0] is engine and [q.key for q in given[1]] == keys and given[2] == asked
        return {"runs 0": 60.0}

    def of(questions):
        return lambda *given: questions if given == (engine, groups) else pytest.fail("of others")

    with monkeypatch.context() as patch:
        patch.setattr(tuning, "_of_learning", of(learning))
        patch.setattr(tuning, "_of_runs", of(widths))
        patch.setattr(tuning, "_seconds", seconds)
        kept.write("learning", {"lanes": 3})
        decided = tuning.decide(engine, iter(groups), asked, **again)
    lanes, source = ({"lanes": 16}, NEVER) if again else ({"lanes": 3}, BEFORE)
    assert checked == [0, 1] and placed == [(0, lanes), (1, lanes)]
    assert decided.runs == ({0: 5, 1: 11} if most is None else {0: 7, 1: 7})
    sources = {"learning": source, **({"runs 0": NOW, "runs 1": NEVER} if most is None else {})}
    assert decided.answers.keys() == sources.keys()
    assert all(answer.source.startswith(sources[key]) for key, answer in decided.answers.items())
    assert all(said.startswith(source) for said in engine.origins.values())
    assert decided.layouts[tuning.place("learning")] == lanes
    # Nobody asks how learning lies, and nobody said that anything may be measured.
    monkeypatch.setattr(tuning, "_of_learning", of([]))
    monkeypatch.setattr(tuning, "_of_runs", of([widths[1]]))
    tuning.decide(engine, groups, Asked(most=most))
    assert engine.origins == {0: "", 1: NEVER if most is None else ""}
