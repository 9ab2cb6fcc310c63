"""Availability processes: their laws, their coupling over parameters, and files that do not fit."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

import pausejax.network  # noqa: F401  (registers those of the package)
from pausejax import parts

K = 40


def process(name, num_clients=K, **values):
    return parts.registered_parts().get("availability", name).build(num_clients=num_clients, **values)


def play(availability, rounds, seed=0):
    """Who is available, bool [rounds, K], by the keys of a seed."""
    key = jax.random.key(seed)

    def step(state, round):
        return availability.step(jax.random.fold_in(key, round), state, round)

    start = availability.init(jax.random.fold_in(key, 0))
    return np.asarray(jax.jit(lambda: jax.lax.scan(step, start, jnp.arange(1, rounds + 1))[1])())


def test_always_is_everyone():
    assert process("always").always and play(process("always"), 5).all()


@pytest.mark.parametrize("name", ["bernoulli", "markov"])
def test_others_are_not_taken_for_always(name):
    assert not process(name).always


@pytest.mark.parametrize("probability", [0.0, 0.3, 1.0])
def test_bernoulli_frequency(probability):
    there = play(process("bernoulli", availability_probability=probability), 500)
    assert there.dtype == bool and there.shape == (500, K)
    # exact binomial test, false alarm rate 1e-4
    assert stats.binomtest(int(there.sum()), there.size, probability).pvalue > 1e-4


def test_a_larger_probability_never_takes_a_client_away():
    few, many = (play(process("bernoulli", availability_probability=p), 50) for p in (0.4, 0.7))
    assert (few <= many).all() and (few < many).any()
    short, long = (
        play(process("markov", departure_probability=d, return_probability=r), 50)
        for d, r in ((0.3, 0.2), (0.1, 0.4))
    )
    assert (short <= long).all() and (short < long).any()


@pytest.mark.parametrize(("leave", "back"), [(0.1, 0.5), (0.6, 0.3), (1.0, 1.0), (0.0, 0.2), (0.3, 0.0)])
def test_markov_starts_and_stays_in_its_stationary_law(leave, back):
    chain = process("markov", 2_000, departure_probability=leave, return_probability=back)
    there = play(chain, 30)
    on = back / (leave + back)
    # Each round and the transitions between rounds, by exact binomial tests at 1e-5: false alarm rate 4e-4.
    for row in (0, 7, 29):
        assert stats.binomtest(int(there[row].sum()), 2_000, on).pvalue > 1e-5
    before, after = there[:-1], there[1:]
    if before.any():
        assert stats.binomtest(int((before & ~after).sum()), int(before.sum()), leave).pvalue > 1e-5
    if not before.all():
        assert stats.binomtest(int((~before & after).sum()), int((~before).sum()), back).pvalue > 1e-5


def test_a_markov_chain_that_never_moves_has_everyone():
    assert play(process("markov", departure_probability=0.0, return_probability=0.0), 5).all()


def test_probabilities_are_an_axis_of_one_program():
    def first(probability):
        chosen = process("bernoulli", availability_probability=probability)
        return chosen.step(jax.random.key(3), (), jnp.int32(1))[1]

    together = jax.jit(jax.vmap(first))(jnp.array([0.2, 0.8]))
    np.testing.assert_array_equal(together, [first(0.2), first(0.8)])


def test_a_file_is_read_row_by_row_and_again():
    file = np.random.default_rng(0).integers(0, 2, (3, 5))
    there = play(process("availability_trace", 5, availability_file=jnp.asarray(file, jnp.float32)), 8)
    np.testing.assert_array_equal(there, file[[0, 1, 2, 0, 1, 2, 0, 1]] > 0)


@pytest.mark.parametrize(
    ("file", "message"),
    [
        (None, "availability_file: must have num_clients = 3 columns, but has no numbers"),
        (np.ones((4, 2)), r"must have num_clients = 3 columns, but has shape \(4, 2\)"),
        (np.ones((0, 3)), "availability_file: must have one row or more"),
        (np.full((2, 3), 0.5), "availability_file: must hold only 0 and 1, but holds 0.5"),
        (np.array([[0, 1, -1]]), "availability_file: must hold only 0 and 1, but holds -1"),
        (np.full((2, 3), np.nan), "availability_file: must hold only 0 and 1, but holds nan"),
    ],
)
def test_a_file_that_does_not_fit_is_refused(file, message):
    values = {} if file is None else {"availability_file": jnp.asarray(file, jnp.float32)}
    with pytest.raises(ValueError, match=message):
        process("availability_trace", 3, **values)
