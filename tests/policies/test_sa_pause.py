"""The annealed policies, each driving itself, against (14) enumerated in float64 on its own history."""

import dataclasses
import itertools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from pausejax import bandit, selection
from pausejax.policies.base import Clients, View
from pausejax.policies.sa_pause import sa_pause
from pausejax.policies.vanilla_sa import vanilla_sa

NUM_CLIENTS, M, DECAY, GAIN = 6, 2, 0.04, 1.5
OBJECTIVE = bandit.Objective(
    generalization_weight=10.0, privacy_weight=1.0, exploitation_gain=GAIN, budget_decay=DECAY
)
SETTINGS = {
    "num_clients": NUM_CLIENTS,
    "clients_per_round": M,
    "objective": OBJECTIVE,
    "temperature_divisor": 3.0,
}


def latencies(rounds, seed=0):
    rng = np.random.default_rng(seed)
    return np.maximum(
        0.05, np.linspace(0.1, 0.8, NUM_CLIENTS) + 0.05 * rng.normal(size=(rounds, NUM_CLIENTS))
    )


def gaps(latency, share, played, clock):
    """How far each played set is below the maximum of (14); inf if it had to be of new clients only."""
    counts, total = np.zeros(NUM_CLIENTS), np.zeros(NUM_CLIENTS)
    sets = [list(s) for s in itertools.combinations(range(NUM_CLIENTS), M)]
    for row, members in enumerate(played):
        time = row if clock == "paper" else row + 1
        seen = np.maximum(counts, 1)
        width = np.sqrt((M + 1) * math.log(max(time, 1)) / seen)
        ucb = np.where(counts > 0, GAIN * total / seen + width, np.inf)
        lag = M * share - (counts / time if time else 0.0)
        score = (10 * np.abs(lag) ** 2 * np.sign(lag) + np.exp(-DECAY * counts)) / M
        value = np.array([ucb[s].min() + score[s].sum() for s in sets])
        mine = ucb[members].min() + score[members].sum()
        if np.isinf(value).any():
            best = max(score[s].sum() for s in sets if np.isinf(ucb[s]).all())
            yield best - score[members].sum() if np.isinf(mine) else np.inf
        else:
            yield value.max() - mine
        counts[members] += 1
        total[members] += 0.05 / latency[row][members]


@pytest.mark.parametrize(
    ("policy", "clock"), [(sa_pause, "paper"), (sa_pause, "reference"), (vanilla_sa, "paper")]
)
def test_with_many_steps_every_selection_is_an_argmax(play, policy, clock):
    latency = latencies(25)
    share = np.array([1, 2, 3, 1, 2, 3]) / 12
    members, weights, _ = play(
        policy(
            annealing_steps=1_000,
            **{**SETTINGS, "objective": dataclasses.replace(OBJECTIVE, clock=clock)},
        ),
        latency,
        data_share=share,
    )
    assert (np.diff(members, axis=1) > 0).all()
    np.testing.assert_allclose(weights, share[members] / share[members].sum(axis=1, keepdims=True), rtol=1e-6)
    assert max(gaps(latency, share, members, clock)) < 1e-5
    assert sorted(members[: NUM_CLIENTS // M].ravel()) == list(range(NUM_CLIENTS)), "everyone once, first"


def test_without_steps_the_sets_are_random(play):
    members, _, _ = play(sa_pause(annealing_steps=0, **SETTINGS), latencies(60))
    assert (np.diff(members, axis=1) > 0).all()
    assert len({tuple(row) for row in members}) > 10
    assert max(gaps(latencies(60), np.full(NUM_CLIENTS, 1 / NUM_CLIENTS), members, "paper")) > 0.1


@pytest.mark.parametrize(
    ("policy", "anneal", "options"),
    [
        (sa_pause, selection.anneal, {"temperature_divisor": 40.0}),
        (sa_pause, selection.anneal, {"temperature_divisor": 40.0, "temperature_margin": 30.0}),
        (vanilla_sa, selection.vanilla_anneal, {"temperature_divisor": 300.0}),
    ],
    ids=["κ", "ω", "κ of Vanilla-SA"],
)
def test_the_walk_is_the_annealers_at_the_policys_own_temperature(policy, anneal, options):
    """Short walks from 300 keys end where those of the annealer end, and elsewhere without the options."""
    rng, t = np.random.default_rng(2), 30
    counts, mean = rng.integers(1, 12, NUM_CLIENTS), rng.uniform(0.1, 0.9, NUM_CLIENTS)
    share = np.array([1, 2, 3, 1, 2, 3]) / 12
    lag = M * share - counts / (t - 1)
    ucb = GAIN * mean + np.sqrt((M + 1) * math.log(t - 1) / counts)
    terms = [ucb, np.sign(lag) * lag**2, np.exp(-DECAY * counts)]
    terms = [jnp.asarray(term, jnp.float32) for term in terms]
    keys = jax.random.split(jax.random.key(0), 300)
    weights = {"generalization_weight": 10.0, "privacy_weight": 1.0, "m": M, "steps": 4}

    def annealed(**options):
        return jax.jit(jax.vmap(lambda key: anneal(key, *terms, **weights, **options).members))(keys)

    def played(**options):
        made = policy(**{**SETTINGS, "annealing_steps": 4, **options})
        state = made.init(keys[0], Clients(jnp.asarray(share, jnp.float32), jnp.ones(NUM_CLIENTS)))
        seen = bandit.BanditState(jnp.asarray(counts, jnp.int32), jnp.asarray(mean, jnp.float32))
        state = state._replace(bandit=seen)
        view = View(jnp.int32(t), jnp.ones(NUM_CLIENTS), lambda clients: jnp.zeros(clients.shape))
        return jax.jit(jax.vmap(lambda key: made.select(key, state, view).members))(keys)

    own = played(**options)
    np.testing.assert_array_equal(own, annealed(**options))
    for name in options:
        rest = {key: value for key, value in options.items() if key != name}
        assert (np.asarray(own) != np.asarray(annealed(**rest))).any(axis=1).sum() > 5


@pytest.mark.parametrize("policy", [sa_pause, vanilla_sa])
@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"annealing_steps": -1}, "annealing_steps: must be an integer >= 0, not -1"),
        ({"clients_per_round": 7}, "clients_per_round: must be from 1 to num_clients = ., not 7"),
        ({"objective": bandit.Objective(clock="sun")}, "clock: must be one of paper, reference, not 'sun'"),
    ],
)
def test_bad_settings_are_refused_by_name(policy, change, message):
    with pytest.raises(ValueError, match=message):
        policy(**{"annealing_steps": 10, **SETTINGS, **change})
