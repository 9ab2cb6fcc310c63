"""A group that is not played: where its arrays lie, how much they hold, what its runs have lost."""

import dataclasses
import itertools

import jax
import numpy as np
import pytest

from pausejax import data, kinds, network
from pausejax.clients import costs, expected_regret
from pausejax.clients.build import build_config
from pausejax.clients.inputs import StaticConfig
from pausejax.clients.record import Record
from pausejax.clients.simulation import ClientSimulation
from pausejax.data.host import DataCache
from pausejax.devices import runs_mesh
from pausejax.study.plan import make_plan
from pausejax.study.simulation import Segment

K, M, SAMPLES, SEEDS = 4, 2, 301, 3
BANDIT = {"mode": "bandit", "rounds": 6, "policy": [{"name": "random"}]}


def plan_of(**document):
    around = {"num_clients": K, "clients_per_round": M, **document.pop("network", {})}
    return make_plan(kinds.parse({**BANDIT, "network": around, **document}))


def group_of(devices=None, **document):
    """A simulation and the runs of its group."""
    plan = plan_of(**document)
    return ClientSimulation(plan.study, plan.groups[0], DataCache(), devices), plan.groups[0].runs


def simulation_of(devices=None, **document):
    return group_of(devices, **document)[0]


TRAINING = {
    "mode": "training",
    "rounds": 3,
    "seeds": SEEDS,
    "data": {"train_samples": SAMPLES},
    "training": {"model": "linear"},
}


@pytest.fixture(scope="module")
def copied():
    return simulation_of(**TRAINING)


@pytest.fixture(scope="module")
def shared_out(copied):
    return copied.sharded()


def test_data_are_shared_out_where_clients_learn_on_several_devices(copied, shared_out):
    assert len(jax.local_devices()) == 2
    assert copied.input_shards == 1 and [copied.padded(n) for n in (1, 2, 3)] == [1, 2, 4]
    assert shared_out.input_shards == 2 and [shared_out.padded(n) for n in (1, 2, 3)] == [2, 2, 4]
    assert shared_out.config.learning.sharded and not copied.config.learning.sharded
    alone = simulation_of(jax.local_devices()[:1], **TRAINING)
    assert alone.sharded() is alone
    selecting = simulation_of()
    assert selecting.sharded() is selecting and selecting.input_shards == 1


@pytest.mark.parametrize("rows", [[0, 2], [1]])
@pytest.mark.parametrize("how", ["copied", "shared_out"])
def test_a_program_is_called_with_what_it_was_lowered_for(how, rows, request):
    """Also where the same simulation lay on more devices before."""
    simulation, runs = request.getfixturevalue(how), plan_of(**TRAINING).groups[0].runs
    simulation.arguments(runs[:2])
    made = simulation.arguments([runs[row] for row in rows])
    told = simulation.argument_shapes(len(rows))
    assert jax.tree.structure(made) == jax.tree.structure(told)
    for array, shape in zip(jax.tree.leaves(made), jax.tree.leaves(told), strict=True):
        assert (array.shape, array.dtype) == (shape.shape, shape.dtype)
        assert array.sharding.is_equivalent_to(shape.sharding, array.ndim)
    inputs = np.asarray(made[0].data.inputs)
    source = data.load("digits").train_inputs[:SAMPLES].reshape(SAMPLES, -1)
    np.testing.assert_array_equal(inputs[:SAMPLES], source)
    devices = runs_mesh(len(rows)).size if how == "shared_out" else 1
    assert len(inputs) == SAMPLES + SAMPLES % devices and not inputs[SAMPLES:].any()
    np.testing.assert_array_equal(made[0].seed, rows)


def test_a_device_holds_so_many_bytes(copied, shared_out):
    source = data.load("digits")
    # The test set is one batch.
    batch = min(copied.config.learning.training.eval_batch, len(source.test_targets))
    pixel, label = source.train_inputs.dtype.itemsize, source.train_targets.dtype.itemsize
    padded = -(-len(source.test_targets) // batch) * batch
    held = copied.device_bytes()
    assert held.shared == {
        "training data": SAMPLES * (64 * pixel + label),
        "test data": padded * (64 * pixel + label + 1) + 2 * 4,
        "partitions": 4 * SEEDS * (SAMPLES + 2 * K),
        "tables": 0,
    }
    weights = 4 * (64 * 10 + 10)
    # A number of each kind and the cohort, of two calls of three rounds.
    assert held.per_run["parameters"] == weights
    assert held.per_run["records"] == 2 * 3 * 4 * (len(Record._fields) + M)
    half = shared_out.device_bytes()
    assert half.shared.pop("training data (1/2 of the inputs)") == 151 * 64 * pixel + SAMPLES * label
    assert {"training data", *half.shared} == set(held.shared) and half.per_run == held.per_run


def test_without_learning_a_device_holds_runs_and_tables_alone(tmp_path):
    np.savetxt(tmp_path / "trace.csv", np.full((7, K), 0.5), delimiter=",")
    held = simulation_of(
        network={"latency": "trace", "trace_file": str(tmp_path / "trace.csv")}
    ).device_bytes()
    assert held.shared == {"training data": 0, "test data": 0, "partitions": 0, "tables": 4 * 7 * K}
    assert held.per_run["parameters"] == held.per_run["moments"] == 0


def test_runs_are_given_their_own_values_and_equal_shares():
    simulation, runs = group_of(seeds=[9, 4], network={"min_latency": [0.02, 0.03]})
    assert [(run.seed, run.values["min_latency"]) for run in runs] == [
        (seed, floor) for floor in (0.02, 0.03) for seed in (9, 4)
    ]
    other = dataclasses.replace(runs[1], values={**runs[1].values, "min_latency": 0.5})
    world, hyper = simulation.arguments([runs[3], runs[0], other, other])
    assert np.asarray(world.seed).tolist() == [4, 9, 4, 4]
    np.testing.assert_array_equal(hyper["min_latency"], np.float32([0.03, 0.02, 0.5, 0.5]))
    np.testing.assert_array_equal(world.data_share, np.full((4, K), 0.25, np.float32))
    assert np.asarray(world.partition).tolist() == [0, 1, 0, 0]


@pytest.mark.parametrize(("policy", "slots"), [("random", M), ("fedavg", K)])
def test_a_round_trains_and_records_as_many_as_the_policy_has_slots(policy, slots):
    simulation = simulation_of(policy=[{"name": policy}])
    assert costs.cohort_of(simulation) == (slots, False)
    record = 4 * (len(Record._fields) + slots)
    assert simulation.device_bytes().per_run["records"] == 2 * simulation.rounds_per_call * record


def test_cohorts_of_equal_groups_are_traced_once(monkeypatch):
    equal, traced, build = (
        [simulation_of(policy=[{"name": "random"}]) for _ in range(2)],
        [],
        StaticConfig.build,
    )
    monkeypatch.setattr(StaticConfig, "build", lambda *given: traced.append(given) or build(*given))
    costs.cohort_shapes.clear_cache()
    assert [costs.cohort_of(simulation) for simulation in equal] == [(M, False)] * 2
    assert len(traced) == 1


def test_updates_that_a_policy_reads_lie_on_the_device(copied):
    training = {"training": {"model": "linear"}, "data": {"train_samples": SAMPLES}}
    reads = simulation_of(mode="training", policy=[{"name": "clustered_similarity"}], **training)
    assert costs.cohort_of(reads) == (M, True)
    assert reads.device_bytes().per_run["updates"] == 4 * M * (64 * 10 + 10)
    assert "updates" not in copied.device_bytes().per_run


def test_a_simulation_says_how_often_its_loops_go_round(copied):
    """25 samples a client in minibatches of 20."""
    found = copied.turns()
    steps = copied.config.learning.training.local_epochs * -(-(SAMPLES // K) // 20)
    assert found["rounds"] == copied.rounds_per_call and found["local_steps"] == pytest.approx(steps, rel=0.2)
    assert found["evaluation"] == 1 / copied.config.eval_every
    bandit = simulation_of()
    assert bandit.turns() == {"rounds": bandit.rounds_per_call}


COHORTS = [(0, 1), (2, 3), (1, 2), (0, 3), (0, 1), (1, 3)]


def segment_of(selected, latency, rows):
    """Six rounds of runs that are told by row, in the order that they lie in."""
    record = {
        "round_latency": np.repeat(np.array(latency, np.float32)[:, None], 6, axis=1),
        "selected": np.array(selected, np.int32),
        "reward": np.zeros((len(rows), 6), np.float32),
        "diverged_round": np.zeros((len(rows), 6), np.int32),
        "max_releases": np.zeros((len(rows), 6), np.int32),
    }
    return Segment(1, 6, np.arange(len(rows)), {name: values[rows] for name, values in record.items()})


def test_runs_lose_against_their_own_law_as_long_as_they_are_played():
    """Both laws know the two fast clients alike, who are the first cohort; one run stops in round 3."""
    simulation, runs = group_of(
        expected_regret=True,
        stop_at_latency=5.0,
        network={"slow_latency": [0.4, 0.9], "min_latency": 0.05},
        reward={"generalization_weight": 20.0, "privacy_weight": 3.0},
    )
    segment = segment_of([COHORTS, COHORTS[::-1]], [0.5, 2.0], np.array([1, 0]))
    played = [runs[1], runs[0]]
    found = simulation.finish([segment], None, played, lambda: None)["expected_regret"]
    assert found.dtype == np.float32 and found.shape == (2, 6)
    sets = list(itertools.combinations(range(K), M))
    for place, run in enumerate(played):
        slow = float(np.float32(run.values["slow_latency"]))
        speed = network.Speeds(slow_latency=slow)
        law = network.floored(network.two_speed(num_clients=K, min_latency=0.05, speeds=speed), 0.05)
        speeds = expected_regret.expected_speed(jax.jit(law.cdf), 0.05)(np.array(sets))
        counts = np.zeros(K)
        cohorts = segment.records["selected"][place]
        last = int(np.isfinite(found[place]).sum())
        assert last == (6 if segment.records["round_latency"][place, 0] == 0.5 else 3)
        for t, members in enumerate(cohorts[:last]):
            lag = M / K - (counts / t if t else 0)
            term = 20 * np.sign(lag) * lag**2 + 3 * np.exp(-0.04 * counts)
            worth = [speed + term[list(s)].sum() / M for s, speed in zip(sets, speeds, strict=True)]
            lost = max(worth) - worth[sets.index(tuple(members))]
            assert found[place, t] == pytest.approx(lost, abs=2e-5)
            counts[members] += 1


@pytest.mark.parametrize("stage", ["before_release", "after_release"])
def test_failures_are_in_a_program_whose_runs_have_them(stage):
    """Not in that of their neighbours."""
    network = {"failure_probability": [0.0, 0.1, 0.2], "failure_stage": stage}
    plan = plan_of(network=network)
    stages = [build_config(plan.study, group, DataCache()).failure_stage for group in plan.groups]
    chances = [{run.values["failure_probability"] for run in group.runs} for group in plan.groups]
    assert (stages, chances) == ([None, stage], [{0.0}, {0.1, 0.2}])
