"""The pieces of a round and what describes a study, each alone: failures, gaps, bounds, quantities."""

import itertools
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import xarray as xr

from pausejax import bandit, kinds, network
from pausejax.clients import kind, quantities
from pausejax.clients.bound import regret_bound_of
from pausejax.clients.meeting import meet_network, turn_out
from pausejax.clients.parameters import LEARNING
from pausejax.clients.play import of_world
from pausejax.clients.program import World
from pausejax.clients.round import mean_loss
from pausejax.clients.scoring import score_round
from pausejax.federated.batches import TrainingData
from pausejax.parts import PartError
from pausejax.policies.base import Cohort
from pausejax.study.plan import make_plan


def test_a_loss_is_weighted_and_nobodys_is_unknown():
    """A slot without a member counts for nothing, whatever stands in it."""
    members = jnp.array([[0, 3, -1], [2, 0, 1], [-1, -1, -1]])
    weights = jnp.array([[0.25, 0.75, 0.5], [0.5, 0.25, 0.25], [0.3, 0.3, 0.4]])
    loss = jnp.array([[4.0, 8.0, 100.0], [0.0, 2.0, 6.0], [1.0, 1.0, 1.0]])
    np.testing.assert_array_equal(mean_loss(Cohort(members, weights), loss), [7.0, 2.0, np.nan])


class Absences:
    """Availability that tells what it was given."""

    always = False

    def step(self, key, state, round):
        return {"state": state, "round": round, "key": key}, jnp.array([True, False, True])


def test_every_purpose_of_a_round_draws_with_its_own_key():
    """0 for latencies, 3 for availability and 4 for failures."""
    law = SimpleNamespace(sample=lambda key: jax.random.uniform(key, (3,)))

    def program(absences, stage):
        return SimpleNamespace(
            build_law=lambda hyper, files: law,
            build_availability=lambda hyper, files: absences,
            failure_stage=stage,
            num_clients=3,
        )

    key = jax.random.key(5)
    hyper = {"failure_probability": 0.6}
    met = meet_network(program(Absences(), "before_release"), {}, 7, key, hyper, "before")
    draws = [np.asarray(jax.random.uniform(jax.random.fold_in(key, purpose), (3,))) for purpose in range(5)]
    np.testing.assert_array_equal(met.latency, draws[0])
    np.testing.assert_array_equal(met.fails, draws[4] < 0.6)
    assert len({tuple(draw < 0.6) for draw in draws}) > 1
    assert met.available.tolist() == [True, False, True]
    assert met.availability["state"] == "before" and met.availability["round"] == 7
    assert met.availability["key"] == jax.random.fold_in(key, 3)
    usual = meet_network(program(SimpleNamespace(always=True), None), {}, 7, key, hyper, "before")
    assert usual.available is None and usual.fails is None and usual.availability == "before"


def test_where_nobody_fails_everybody_counts():
    cohort = Cohort(jnp.array([[0, 2, -1]]), jnp.array([[0.5, 0.5, 0.0]]))
    assert turn_out(None, cohort, None) == (cohort, None, cohort.members)


def test_who_never_fails_does_not_at_the_smallest_draw_either(monkeypatch):
    monkeypatch.setattr(jax.random, "uniform", lambda key, shape: jnp.array([0.0, 0.5, 0.4999]))
    program = SimpleNamespace(
        build_law=lambda *_: SimpleNamespace(sample=lambda key: None),
        build_availability=lambda *_: SimpleNamespace(always=True),
        failure_stage="after_release",
        num_clients=3,
    )
    for chance, fails in ((0.0, [False] * 3), (0.5, [True, False, True])):
        met = meet_network(program, {}, 1, jax.random.key(0), {"failure_probability": chance}, ())
        assert met.fails.tolist() == fails


@pytest.mark.parametrize("absent", [None, 4])
def test_the_gap_is_to_the_best_set_of_those_who_are_there(absent):
    """Of 40 made-up histories, over all sets in float64; unknown where one who is there is unexplored."""
    k, m, runs = 5, 2, 40
    rng = np.random.default_rng(1)
    counts = rng.integers(1, 9, (runs, k))
    counts[: runs // 4, rng.integers(0, k, runs // 4)] = 0
    counts[runs // 2 :, 4] = 0
    mean, share = rng.random((runs, k)), rng.dirichlet(np.full(k, 5.0), runs)
    there = np.ones(k, bool)
    if absent is not None:
        there[absent] = False
    members = np.array([rng.choice(np.flatnonzero(there), m, replace=False) for _ in range(runs)])
    rounds = rng.integers(20, 40, runs)
    objective = bandit.Objective(
        generalization_weight=7.0, privacy_weight=2.0, budget_decay=0.3, exploitation_gain=1.5
    )
    given = [jnp.asarray(x, jnp.float32) for x in (mean, share)]

    def scored(round, mean, share, counts, members, gap):
        return score_round(
            round,
            objective,
            mean,
            mean,
            share,
            bandit.BanditState(counts, mean),
            jnp.zeros(k, jnp.int32),
            members,
            None if absent is None else jnp.asarray(there),
            None,
            clients_per_round=m,
            selection_gap=gap,
        )[2]

    integers = [jnp.asarray(x, jnp.int32) for x in (rounds, counts, members)]
    found = jax.jit(jax.vmap(lambda *all: scored(*all, True)))(integers[0], *given, *integers[1:])
    sets = [list(s) for s in itertools.combinations(np.flatnonzero(there), m)]
    known = 0
    for run in range(runs):
        if (counts[run][there] == 0).any():
            assert np.isnan(found[run])
            continue
        time, seen = rounds[run] - 1, np.maximum(counts[run], 1)
        ucb = 1.5 * mean[run] + np.sqrt((m + 1) * np.log(time) / seen)
        lag = m * share[run] - counts[run] / time
        score = (7 * np.sign(lag) * lag**2 + 2 * np.exp(-0.3 * counts[run])) / m
        worth = {tuple(s): ucb[s].min() + score[s].sum() for s in sets}
        assert found[run] == pytest.approx(max(worth.values()) - worth[tuple(sorted(members[run]))], abs=1e-4)
        known += 1
    assert 5 < known < runs and np.nanmax(found) > 0.1


def result_of(law="two_speed", **more):
    """Two runs, of which a curve shows one setting."""
    values = {
        "num_clients": [5, 9],
        "clients_per_round": [2, 4],
        "min_latency": [0.05, 0.1],
        "fast_latency": [0.2, 0.3],
        "slow_latency": [0.7, 0.9],
        "latency_deviation": [0.05, 0.02],
        "generalization_weight": [3.0, 50.0],
        "privacy_weight": [2.0, 70.0],
        "latency": [law, law],
        **more,
    }
    return xr.Dataset(coords={**{name: ("run", both) for name, both in values.items()}, "round": [1, 2, 50]})


def test_the_bound_is_that_of_theorem_3_for_the_first_run():
    speeds = network.Speeds(fast_latency=0.2, slow_latency=0.7)
    law = network.two_speed(num_clients=5, min_latency=0.05, speeds=speeds, latency_deviation=0.05)
    expected = jax.jit(lambda: network.expected_reward(network.floored(law, 0.05), 0.05))()
    mu = np.sort(np.asarray(expected, np.float64))
    smallest, largest = np.diff(mu).min(), 2 * 3 + 2 + mu[-1] - mu[0]
    per_client = 4 * 3 * np.log([1, 2, 50]) / smallest**2 + 1 + 2 * np.pi**2 / 3
    np.testing.assert_allclose(regret_bound_of(result_of()), 5 * (largest + smallest) * per_client, rtol=1e-3)


@pytest.mark.parametrize("law", ["trace", "a law of somebody else's"])
def test_there_is_no_bound_for_a_law_that_a_result_does_not_hold(law):
    found = regret_bound_of(result_of(law))
    assert found.shape == (3,) and np.isnan(found).all()


def study(**more):
    network = {"num_clients": 4, "clients_per_round": 2}
    return kinds.parse({"rounds": 12, "policy": [{"name": "random"}], "network": network, **more})


def test_rounds_clients_and_evaluations_are_labelled():
    arrays = {"counts": np.zeros((3, 4), np.int32)}
    found, same = kind.labels(study(eval_every=5), arrays)
    assert same is arrays and found["eval_round"][0] == "eval"
    assert [x.tolist() for x in (found["round"], found["client"], found["eval_round"][1])] == [
        [*range(1, 13)],
        [0, 1, 2, 3],
        [5, 10, 12],
    ]
    assert found["round"].dtype == found["client"].dtype == np.int32
    assert set(kind.labels(study(mode="bandit"), arrays)[0]) == {"round", "client"}


def test_runs_with_a_proximal_term_are_a_program_of_their_own():
    plan = make_plan(study(training={"proximal_weight": [0.0, 0.5, 1.0, 2.0]}))
    weights = [sorted(run.values["proximal_weight"] for run in plan.runs_of(group)) for group in plan.groups]
    assert sorted(weights) == [[0.0], [0.5, 1.0, 2.0]]


def test_what_learning_alone_reads():
    assert {
        "learning_rate",
        "model",
        "dataset",
        "train_samples",
        "private",
        "sensitivity",
        "clip",
    } <= LEARNING
    assert not {"num_clients", "privacy_budget", "budget_decay", "privacy_weight", "min_latency"} & LEARNING


def test_shared_training_inputs_alone_are_split_where_they_are_sharded():
    whole = of_world("split", "shared")
    assert whole == World("split", "split", "split", "shared", "shared", "shared")
    sharded = of_world("split", "shared", sharded=True)
    assert sharded == whole._replace(data=TrainingData("split", *["shared"] * 6))


def quantity(name, function):
    part = SimpleNamespace(where=f'quantity "{name}"')
    return SimpleNamespace(name=name, part=part, build=function)


def test_quantities_are_numbers_and_are_told_the_runs_values():
    bound = (
        quantity("scaled", lambda seen, *, gain: seen * gain),
        quantity("whole", lambda seen, **_: jnp.int32(3)),
    )
    found = quantities.record(bound, jnp.float32(2), {"gain": jnp.float32(4)})
    assert {name: (value.dtype, float(value)) for name, value in found.items()} == {
        "scaled": (jnp.float32, 8.0),
        "whole": (jnp.float32, 3.0),
    }
    for made, told in ((jnp.ones(2), "float32 [2]"), (jnp.bool_(True), "bool []"), ("much", "str")):
        with pytest.raises(PartError) as error:
            quantities.record((quantity("mine", lambda seen, made=made: made),), None, {})
        assert str(error.value) == f'quantity "mine": must return one number, not {told}'
