"""The pieces of a round and what describes a study, each alone: failures, gaps, quantities."""

import itertools
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from pausejax import bandit, kinds, regret
from pausejax.clients import quantities
from pausejax.clients.conditions import draw_network
from pausejax.clients.record import mean_loss
from pausejax.parts import PartError
from pausejax.policies.base import Cohort
from pausejax.study.plan import make_plan


def test_a_loss_is_weighted_and_nobodys_is_unknown():
    """A slot without a member counts for nothing, whatever stands in it."""
    members = jnp.array([[0, 3, -1], [2, 0, 1], [-1, -1, -1]])
    weights = jnp.array([[0.25, 0.75, 0.5], [0.5, 0.25, 0.25], [0.3, 0.3, 0.4]])
    loss = jnp.array([[4.0, 8.0, 100.0], [0.0, 2.0, 6.0], [1.0, 1.0, 1.0]])
    np.testing.assert_array_equal(mean_loss(Cohort(members, weights), loss), [7.0, 2.0, np.nan])


def test_who_never_fails_does_not_at_the_smallest_draw_either(monkeypatch):
    monkeypatch.setattr(jax.random, "uniform", lambda key, shape: jnp.array([0.0, 0.5, 0.4999]))
    config = SimpleNamespace(
        build_law=lambda *_: SimpleNamespace(sample=lambda key: None),
        build_availability=lambda *_: SimpleNamespace(always=True),
        failure_stage="after_release",
        num_clients=3,
        limits_releases=False,
    )
    for chance, fails in ((0.0, [False] * 3), (0.5, [True, False, True])):
        drawn = draw_network(config, {}, 1, jax.random.key(0), {"failure_probability": chance}, (), None)
        assert drawn.fails.tolist() == fails


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

    def gap(round, mean, share, counts, members):
        available = None if absent is None else jnp.asarray(there)
        history = bandit.BanditState(counts, mean)
        time = bandit.time_of_terms(round, objective.clock)
        return regret.selection_gap(m, time, objective, share, history, members, available)

    integers = [jnp.asarray(x, jnp.int32) for x in (rounds, counts, members)]
    found = jax.jit(jax.vmap(gap))(integers[0], *given, *integers[1:])
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


def study(**more):
    network = {"num_clients": 4, "clients_per_round": 2}
    return kinds.parse({"rounds": 12, "policy": [{"name": "random"}], "network": network, **more})


def test_runs_with_a_proximal_term_are_a_program_of_their_own():
    plan = make_plan(study(training={"proximal_weight": [0.0, 0.5, 1.0, 2.0]}))
    weights = [sorted(run.values["proximal_weight"] for run in group.runs) for group in plan.groups]
    assert sorted(weights) == [[0.0], [0.5, 1.0, 2.0]]


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
    for made, told in (
        (jnp.ones(2), "float32 [2]"),
        (jnp.bool_(True), "bool []"),
        ("much", "str"),
        (jnp.complex64(1j), "complex64 []"),
        (None, "NoneType"),
    ):
        with pytest.raises(PartError) as error:
            quantities.record((quantity("mine", lambda seen, made=made: made),), None, {})
        assert str(error.value) == f'quantity "mine": must return one number, not {told}'
