"""How a study lies on its devices: what is measured, kept, believed, and the same for everybody."""

import json

import jax
import numpy as np
import pytest

import pausejax
from pausejax.commands.main import main
from pausejax.data.host import Sources
from pausejax.engine import kept, local, tuning
from pausejax.engine.engine import Engine
from pausejax.engine.local import Settings, simulate_into
from pausejax.engine.tuning import Asked, decide, place
from pausejax.kinds import parse
from pausejax.results import placements, store
from pausejax.results.folder import Folder
from pausejax.study.plan import make_plan
from pausejax.study.trials import Trials

from ..alike import assert_alike

TRAINING = {
    "rounds": 8,
    "eval_every": 4,
    "seeds": 2,
    "network": {"num_clients": 6, "clients_per_round": 2},
    "data": {"train_samples": 240},
    "training": {"model": "linear", "max_steps": 3},
    "policy": [{"name": "random"}, {"name": "fastest"}],
}
ONE = {**TRAINING, "policy": [{"name": "random"}]}
BANDIT = {
    "mode": "bandit",
    "rounds": 8,
    "seeds": 80,
    "network": {"num_clients": 6, "clients_per_round": 2},
    "policy": [{"name": "random"}],
}
A = {"lanes": 1, "eval_lanes": 2, "eval_batch": 100, "conv": "im2col"}
B = {"lanes": 4, "eval_lanes": 1, "eval_batch": 50, "conv": "im2col"}


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("PAUSEJAX_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path / "cache" / "placement"


def engine_of(document):
    plan = make_plan(parse(document))
    return Engine(plan, Sources())


def key_of(document):
    plan = make_plan(parse(document))
    return plan.study.kind.variants(plan, plan.groups[0], Sources()).key


def timed_by(monkeypatch, fastest, counts=None):
    """Trials without a device: the nearer to `fastest`, the faster; and no bench of the device."""
    real = tuning._of_learning

    def made_up(engine, groups):
        options = {"lanes": (1, 2, 4, 8, 16), "eval_batch": (50, 100, 200, 500)}

        def seconds(layout):
            if counts is not None:
                counts.append(layout)
            return 1.0 + sum(abs(options[n].index(layout[n]) - options[n].index(fastest[n])) for n in options)

        start = {**A, "lanes": 16, "eval_lanes": fastest["eval_lanes"]}
        return [q._replace(trials=lambda: Trials(start, options, seconds)) for q in real(engine, groups)]

    monkeypatch.setattr(tuning, "_of_learning", made_up)


def test_what_was_measured_is_kept_and_asked_once_for_all_policies(monkeypatch, cache):
    counts = []
    timed_by(monkeypatch, B, counts)
    engine = engine_of(TRAINING)
    decided = decide(engine, engine.plan.groups, Asked(seconds=60.0))
    (answer,) = (found for key, found in decided.answers.items() if key.startswith("learning"))
    assert answer.layout == B and len(answer.groups) == 2 and counts
    assert "measured on this device in" in answer.source
    assert all(engine.simulation(group).layout == B for group in engine.plan.groups)
    assert engine.simulation(engine.plan.groups[0]).program.learning.training.lanes == 4
    counts.clear()
    again = engine_of(TRAINING)
    decide(again, again.plan.groups, Asked(seconds=60.0))
    assert again.simulation(again.plan.groups[0]).layout == B and not counts
    assert set(again.origins.values()) == {"measured on such a device before"}
    # What differs in shape is another question, and so is what a study may not use.
    other = engine_of({**TRAINING, "training": {"model": "mlp"}})
    decide(other, other.plan.groups, Asked())
    assert other.simulation(other.plan.groups[0]).layout != B
    fresh = engine_of(TRAINING)
    decide(fresh, fresh.plan.groups, Asked(kept=False))
    assert fresh.simulation(fresh.plan.groups[0]).layout != B and set(fresh.origins.values()) == {
        "not measured"
    }


@pytest.mark.parametrize(
    "damage",
    [
        lambda text: text[: len(text) // 2],
        lambda text: text.replace('"lanes": 4', '"lanes": 8'),
        lambda text: text.replace(jax.__version__, "0.0.1"),
        lambda text: "[]",
        lambda text: '{"layout": 1}',
        lambda text: "\x00",
    ],
)
def test_a_damaged_or_foreign_file_is_left_aside_and_measured_anew(monkeypatch, cache, damage):
    key = key_of(TRAINING)
    kept.write(key, B)
    (file,) = cache.iterdir()
    assert kept.read(key) == B
    file.write_text(damage(file.read_text()))
    with pytest.warns(UserWarning, match="is no measurement of this device"):
        assert kept.read(key) is None
    timed_by(monkeypatch, B)
    engine = engine_of(TRAINING)
    with pytest.warns(UserWarning, match="is no measurement of this device"):
        decide(engine, engine.plan.groups, Asked(seconds=60.0))
    assert engine.simulation(engine.plan.groups[0]).layout == B and kept.read(key) == B


def test_a_sound_file_that_holds_no_layout_is_not_believed(monkeypatch):
    kept.write(key_of(TRAINING), {**B, "lanes": -1})
    engine = engine_of(TRAINING)
    decide(engine, engine.plan.groups, Asked())
    assert engine.simulation(engine.plan.groups[0]).layout["lanes"] > 0


def test_a_cache_that_cannot_be_written_costs_a_warning(monkeypatch, tmp_path):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("PAUSEJAX_CACHE_DIR", str(tmp_path / "file"))
    with pytest.warns(UserWarning, match="cannot keep what was measured"):
        kept.write("learning x", B)
    assert kept.read("learning x") is None


def test_short_studies_measure_nothing_and_long_ones_a_tenth_of_their_time(monkeypatch):
    engine = engine_of(TRAINING)
    asked = []
    monkeypatch.setattr(
        tuning, "descend", lambda trials, seconds: asked.append(seconds) or pytest.fail("measured")
    )
    monkeypatch.setattr(tuning, "matrix_product_rate", lambda: 1e11)
    decide(engine, engine.plan.groups, Asked(seconds=None))
    assert not asked
    questions = tuning._of_learning(engine, engine.plan.groups)

    def allowed(seconds):
        kind = engine.plan.study.kind
        object.__setattr__(kind, "seconds", lambda *_: seconds / 2)  # two groups
        return tuning._seconds(engine, questions, Asked(seconds=None), again=False)

    usual = engine.plan.study.kind.seconds
    try:
        assert allowed(29.0) == {}
        assert list(allowed(40.0).values()) == [pytest.approx(4.0)]
        assert list(allowed(1e6).values()) == [60.0]
    finally:
        object.__setattr__(engine.plan.study.kind, "seconds", usual)


def play(out, stop_after=None, tune=True, document=ONE):
    plan, folder = make_plan(parse(document)), Folder(out)
    found, told = store.prepare(folder, plan), []

    def progress(_):
        told.append(1)
        if stop_after is not None and len(told) > stop_after:
            raise KeyboardInterrupt

    try:
        simulate_into(folder, plan, found, Sources(), Settings(tune=tune), progress=progress)
    except KeyboardInterrupt:
        return None
    return store.read(str(out)).load()


@pytest.mark.slow
def test_a_study_goes_on_as_it_began_whatever_the_cache_says_by_then(tmp_path):
    key = key_of(ONE)
    kept.write(key, A)
    whole = play(tmp_path / "whole")
    assert play(tmp_path / "killed", stop_after=2) is None
    folder = Folder(tmp_path / "killed")
    assert placements.read(folder)[place(key)] == A
    kept.write(key, B)
    went_on = play(tmp_path / "killed")
    assert_alike(went_on, whole)
    # A spec that adds runs adds them in the same way; a study that begins now has the new one.
    more = play(tmp_path / "killed", document={**ONE, "seeds": 3})
    assert placements.read(folder)[place(key)] == A and more.sizes["run"] == 3
    play(tmp_path / "new")
    assert placements.read(Folder(tmp_path / "new"))[place(key)] == B
    play(tmp_path / "untuned", tune=False)
    untuned = placements.read(Folder(tmp_path / "untuned"))[place(key)]
    assert untuned not in (A, B)
    np.testing.assert_allclose(store.read(str(tmp_path / "new"))["test_loss"], whole["test_loss"], rtol=1e-4)


def test_who_decides_first_decides_for_all(tmp_path, monkeypatch):
    plan, folder = make_plan(parse(TRAINING)), Folder(tmp_path / "out")
    store.prepare(folder, plan)
    key, decide = key_of(TRAINING), local.decide
    kept.write(key, B)

    def decide_while_another_shard_does(engine, groups, asked):
        decided = decide(engine, groups, asked)
        placements.settle(folder, store.LOCK, {place(key): A})
        return decided

    monkeypatch.setattr(local, "decide", decide_while_another_shard_does)
    engine = Engine(plan, Sources())
    runs = local.settle(folder, engine, (), Settings(tune=True))
    assert engine.simulation(plan.groups[0]).layout == A and runs.keys() == {0, 1}
    assert set(engine.origins.values()) == {"as the study began"}


def test_a_damaged_decision_of_a_folder_counts_as_none(tmp_path):
    folder = Folder(tmp_path)
    placements.settle(folder, store.LOCK, {"x": A})
    assert placements.settle(folder, store.LOCK, {"x": B, "y": B}) == {"x": A, "y": B}
    text = (tmp_path / placements.NAME).read_text()
    for damaged in (text.replace('"lanes": 1', '"lanes": 2'), text[:40], "[]", "{}", "\x00"):
        (tmp_path / placements.NAME).write_text(damaged)
        assert placements.read(folder) == {}


@pytest.mark.slow
def test_runs_side_by_side_are_what_was_found_and_lanes_bound_them(monkeypatch, caplog):
    caplog.set_level("INFO", "pausejax")
    engine = engine_of(BANDIT)
    (question,) = tuning._of_runs(engine, engine.plan.groups)
    kept.write(question.key, {"runs": 16})
    assert decide(engine, engine.plan.groups, Asked()).runs == {0: 16}
    assert decide(engine, engine.plan.groups, Asked(most=7)).runs == {0: 7}
    result = pausejax.simulate(
        "random", mode="bandit", rounds=3, seeds=80, num_clients=6, clients_per_round=2
    )
    alike = pausejax.simulate(
        "random", mode="bandit", rounds=3, seeds=80, num_clients=6, clients_per_round=2, tune=True
    )
    np.testing.assert_array_equal(result["selected"], alike["selected"])
    told = [record.getMessage() for record in caplog.records if getattr(record, "event", "") == "group"]
    assert "up to 80 side by side" in told[0] and "(not measured)" in told[0]


@pytest.mark.slow
def test_tune_measures_a_real_study_and_run_takes_what_it_kept(tmp_path, capsys, cache):
    spec = tmp_path / "spec.toml"
    spec.write_text(
        "rounds = 4\neval_every = 2\nseeds = 2\n[network]\nnum_clients = 4\nclients_per_round = 2\n"
        '[data]\ntrain_samples = 80\n[training]\nmodel = "linear"\nmax_steps = 1\n'
        '[[policy]]\nname = "random"\n'
    )
    assert main(["tune", str(spec), "--seconds", "2"]) == 0
    shown = capsys.readouterr().out
    assert "random" in shown and "lanes 16" in shown and "1.00" in shown
    (file,) = cache.iterdir()
    layout = json.loads(file.read_text())["layout"]
    assert main(["run", str(spec), "--out", str(tmp_path / "out"), "--no-report", "--quiet"]) == 0
    assert layout in placements.read(Folder(tmp_path / "out")).values()
    assert (
        main(["run", str(spec), "--out", str(tmp_path / "off"), "--no-report", "--log", "text", "--no-tune"])
        == 0
    )
    assert "(not measured)" in capsys.readouterr().err


def test_a_kept_number_of_runs_is_believed_if_it_is_one():
    engine = engine_of(BANDIT)
    (question,) = tuning._of_runs(engine, engine.plan.groups)
    assert all(question.sound({"runs": runs}) for runs in (1, 2, 256))
    wrong = (
        {"runs": 0},
        {"runs": -1},
        {"runs": 2.0},
        {"runs": True},
        {"runs": "2"},
        {},
        {"runs": 1, "lanes": 1},
    )
    assert not any(map(question.sound, wrong))
