"""What is timed, and how much of it: what a timing may cost bounds its runs, steps and samples."""

import dataclasses
from types import SimpleNamespace

import jax.numpy as jnp
import numpy as np
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
    "eval_every": 2,
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


def test_a_machine_that_nobody_knows_is_timed_for_as_long_as_a_fast_one(simulation, monkeypatch):
    step = 2 * 5 * FORWARDS * flops_per_sample(simulation.program.learning, simulation.world.test)
    monkeypatch.setattr(tuning, "_FLOPS", {})
    monkeypatch.setattr(tuning, "_RUNS", {})
    monkeypatch.setattr(tuning, "_FLOPS_ELSEWHERE", 40 * step)
    monkeypatch.setattr(tuning, "_RUNS_ELSEWHERE", 3)
    devices = runs_mesh(20).size
    assert tuning._size(simulation, 20) == (3 * devices, 8, 400)


def variants(policy=0, **more):
    policies = [{"name": "random"}, {"name": "fastest"}, {"name": "oort"}]
    plan = make_plan(kinds.parse({**STUDY, "policy": policies, **more}))
    group = next(group for group in plan.groups if group.algorithm == policies[policy]["name"])
    return tuning.variants(plan, group, Sources())


def test_policies_that_learn_alike_share_a_question():
    usual = variants()
    assert usual.key.startswith("learning ") and {variants(place).key for place in range(3)} == {usual.key}
    others = [
        variants(training={**STUDY["training"], "batch_size": 6}),
        variants(training={**STUDY["training"], "model": "mlp"}),
        variants(training={**STUDY["training"], "proximal_weight": 0.1}),
        variants(network={"num_clients": 5, "clients_per_round": 2}),
        variants(network={"num_clients": 4, "clients_per_round": 3}),
        variants(eval_every=1),
    ]
    assert len({usual.key, *(other.key for other in others)}) == 7
    assert variants(training={**STUDY["training"], "learning_rate": 0.5}).key == usual.key
    plan = make_plan(kinds.parse({"mode": "bandit", "policy": [{"name": "random"}]}))
    assert tuning.variants(plan, plan.groups[0], Sources()) is None


LAYOUT = {"lanes": 3, "eval_lanes": 2, "eval_batch": 70, "conv": "lax"}


def test_a_layout_is_sound_if_it_says_where_everything_lies():
    sound = variants().sound
    assert sound(LAYOUT)
    for wrong in ({}, {**LAYOUT, "lanes": 0}, {**LAYOUT, "conv": "fft"}, {**LAYOUT, "more": 1}, {"lanes": 1}):
        assert not sound(wrong)


@pytest.mark.parametrize("convolutional", [False, True])
def test_layouts_are_tried_as_far_as_there_is_work_for_them(simulation, monkeypatch, convolutional):
    """Of 2 clients a round and 12 runs on two devices 12 can be trained, and 6 evaluated, side by side."""
    learning = dataclasses.replace(
        simulation.program.learning,
        model=simulation.program.learning.model._replace(convolutional=convolutional),
    )
    usual = SimpleNamespace(program=SimpleNamespace(learning=learning, clients_per_round=2), layout=LAYOUT)
    made, size = [], tuning._Size(12, 8, 240)
    monkeypatch.setattr(tuning, "ClientSimulation", lambda *given, **layout: made.append(given) or usual)
    monkeypatch.setattr(
        tuning, "_size", lambda simulation, runs: size if (simulation, runs) == (usual, 20) else None
    )
    timed = []

    def time_training(make, own, lanes, conv):
        timed.append((own, lanes, conv))
        return 5.0

    def time_evaluation(make, own, lanes, batch, conv):
        timed.append((own, lanes, batch, conv))
        return 8.0

    monkeypatch.setattr(tuning, "_time_training", time_training)
    monkeypatch.setattr(tuning, "_time_evaluation", time_evaluation)
    plan = make_plan(kinds.parse(STUDY))
    trials = tuning._trials(plan, plan.groups[0], "sources")
    assert made == [(plan, plan.groups[0], "sources")] and trials.start == LAYOUT
    assert trials.options["lanes"] == (1, 2, 3, 4, 8) and trials.options["eval_lanes"] == (1, 2, 4)
    batches = trials.options["eval_batch"]
    assert 70 in batches and len(batches) > 3 and max(batches) <= 240 and list(batches) == sorted(batches)
    assert trials.options.keys() == {
        "lanes",
        "eval_batch",
        "eval_lanes",
        *(["conv"] if convolutional else []),
    }
    if convolutional:
        assert set(trials.options["conv"]) == {"im2col", "lax"}
    # A round is trained, and every second one evaluated; what was timed is not timed again.
    assert trials.seconds(LAYOUT) == trials.seconds(dict(LAYOUT)) == 5 + 8 / 2
    assert timed == [(size, 3, "lax"), (size, 2, 70, "lax")]
    trials.seconds({**LAYOUT, "lanes": 4})
    assert timed[2:] == [(size, 4, "lax")]


@pytest.fixture
def timed(simulation, monkeypatch):
    """What is compiled for a timing, which comes to six seconds."""
    found = []

    def compiled(function, program, *arguments):
        found.append((function, program, arguments))

        def call(*given):
            assert given == arguments

        return call

    def best_of(call):
        call()
        return 6.0

    monkeypatch.setattr(tuning, "_compiled", compiled)
    monkeypatch.setattr(tuning, "best_of", best_of)

    def make(layout):
        found.append(layout)
        return simulation

    return make, found


def test_a_timing_of_training_counts_for_all_the_steps_of_a_round(simulation, timed):
    make, found = timed
    seconds = tuning._time_training(make, tuning._Size(4, 8, 240), 3, "lax")
    layout, (function, program, (world, hyper, _)) = found
    assert (layout["lanes"], layout["conv"], function) == (3, "lax", tuning._train)
    assert len(world.seed) == len(hyper["learning_rate"]) == 4
    assert program.learning.training.max_steps == 8 and simulation.program.learning.training.max_steps == 100
    # One epoch in minibatches of 5, and 100 of them at most.
    owned = np.asarray(simulation.world.data.size)
    steps = np.minimum(-(-owned // 5), 100).mean()
    assert steps > 8 and seconds == pytest.approx(6 / 4 * steps / 8)
    whole = tuning._time_training(make, tuning._Size(4, 1000, 240), 3, "lax")
    assert whole == pytest.approx(6 / 4)


def test_a_timing_of_evaluation_counts_for_the_whole_test_set(simulation, timed):
    make, found = timed
    seconds = tuning._time_evaluation(make, tuning._Size(4, 8, 240), 2, 70, "lax")
    layout, (function, program, (world, _, _)) = found
    assert (layout["eval_lanes"], layout["eval_batch"], layout["conv"]) == (2, 70, "lax")
    assert function is tuning._evaluate and program is simulation.program and len(world.seed) == 4
    assert world.test.exists.sum() == 240 and world.test.exists.shape == (4, 60)
    assert seconds == pytest.approx(6 / 4 * simulation.world.test.exists.sum() / 240)


def test_a_piece_of_a_round_is_played_for_each_devices_own_runs(simulation):
    world, hyper, state = tuning._begin(simulation, tuning._Size(4, 8, 240))

    def scaled(factor, world, hyper, state):
        assert len(world.seed) == len(hyper["sensitivity"]) == 2
        return factor * world.seed.astype(jnp.float32) + hyper["learning_rate"]

    call = tuning._compiled(scaled, 3.0, world, hyper, state)
    np.testing.assert_allclose(call(world, hyper, state), [3 * seed + 0.01 for seed in range(4)], rtol=1e-6)


def test_cohorts_that_are_timed_are_such_as_are_played(monkeypatch):
    asked = []

    def learn(program, world, hyper, state, keys, cohort):
        asked.append((program, world, hyper, state, cohort))
        return "weights", "memory", SimpleNamespace(loss="loss"), "finite"

    monkeypatch.setattr(tuning, "learn", learn)
    program = SimpleNamespace(clients_per_round=3, num_clients=7)
    world = SimpleNamespace(seed=jnp.arange(5, dtype=jnp.uint32))
    assert tuning._train(program, world, "hyper", "state") == ("weights", "memory", "loss")
    ((*given, cohort),) = asked
    assert given == [program, world, "hyper", "state"]
    members = np.asarray(cohort.members)
    assert members.shape == (5, 3) and set(members.ravel()) == set(range(7))
    assert all(len(set(row)) == 3 for row in members.tolist())
    np.testing.assert_allclose(cohort.weights.sum(axis=1), 1, rtol=1e-6)
