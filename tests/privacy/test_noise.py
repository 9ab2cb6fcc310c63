"""Both generators of noise: the law, and no pattern over numbers, keys and bits."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from pausejax.data.host import DataCache
from pausejax.kinds import parse
from pausejax.privacy import NOISE_GENERATORS, laplace, privatize
from pausejax.privacy.noise import _from_bits, hashed_bits
from pausejax.study.plan import make_plan

KEYS, COUNT = 256, 8_192
FALSE_ALARM = 1e-5
"""Of each test below, with its fixed seed."""


@pytest.fixture(scope="module")
def streams():
    """Draws of many keys side by side, as clients', [KEYS, COUNT] by generator."""
    keys = jax.random.split(jax.random.key(7), KEYS)
    return {
        name: np.asarray(jax.jit(jax.vmap(lambda key, name=name: laplace(key, COUNT, name)))(keys))
        for name in NOISE_GENERATORS
    }


@pytest.fixture(scope="module")
def words():
    """Hashed words, uint32 [2 KEYS, COUNT]: of keys that are split, then of those that are neighbours."""
    split = jax.random.split(jax.random.key(11), KEYS)
    near = jax.vmap(jax.random.key)(jnp.arange(KEYS))
    return np.asarray(jax.jit(jax.vmap(lambda key: hashed_bits(key, COUNT)))(jnp.concatenate([split, near])))


@pytest.mark.slow
@pytest.mark.parametrize("name", NOISE_GENERATORS)
def test_the_law_is_laplaces(streams, name):
    draws = streams[name].astype(np.float64)
    assert np.isfinite(draws).all()
    assert stats.kstest(draws.ravel(), "laplace").pvalue > FALSE_ALARM
    # 2 million draws see a scale that is off by 1 %, and a law without tails.
    assert stats.kstest(1.01 * draws.ravel(), "laplace").pvalue < FALSE_ALARM
    assert min(stats.kstest(row, "laplace").pvalue for row in draws) > FALSE_ALARM / KEYS
    beyond = np.array([(np.abs(draws) > size).sum() for size in (6.0, 9.0, 12.0)])
    for count, size in zip(beyond, (6.0, 9.0, 12.0), strict=True):
        assert stats.binomtest(int(count), draws.size, np.exp(-size)).pvalue > FALSE_ALARM / 3


@pytest.mark.parametrize("name", NOISE_GENERATORS)
def test_sign_and_size_know_nothing_of_each_other(streams, name):
    draws = streams[name].astype(np.float64)
    positive, negative = draws[draws > 0], -draws[draws < 0]
    assert stats.binomtest(len(positive), len(positive) + len(negative)).pvalue > FALSE_ALARM / 2
    assert stats.ks_2samp(positive, negative).pvalue > FALSE_ALARM / 2


@pytest.mark.parametrize("name", NOISE_GENERATORS)
def test_no_draw_tells_another(streams, name):
    # Of uniform numbers, so that every pair counts alike; z values of means of products.
    uniform = np.sqrt(12) * (stats.laplace.cdf(streams[name].astype(np.float64)) - 0.5)
    lags = [1, 2, 3, 4, 7, 8, 16, 31, 32, 64, 128, 256, 1024, 4096]
    within = [np.mean(uniform[:, lag:] * uniform[:, :-lag]) * np.sqrt(uniform[:, lag:].size) for lag in lags]
    between = np.corrcoef(uniform)[np.triu_indices(KEYS, 1)] * np.sqrt(COUNT)
    assert np.abs(within).max() < stats.norm.isf(FALSE_ALARM / 4 / len(lags))
    assert np.abs(between).max() < stats.norm.isf(FALSE_ALARM / 4 / len(between))
    # and all pairs together: the sum of squared z values is a chi-square, nearly
    assert stats.chi2.sf(np.sum(between**2), len(between)) > FALSE_ALARM


@pytest.mark.slow
def test_every_bit_of_every_word_is_a_coin(words):
    bits = np.unpackbits(words.view(np.uint8), bitorder="little").reshape(words.size, 32).astype(np.float32)
    signs = 2 * bits - 1
    z = signs.mean(axis=0) * np.sqrt(len(signs))
    assert np.abs(z).max() < stats.norm.isf(FALSE_ALARM / 64)
    pairs = (signs.T @ signs / np.sqrt(len(signs)))[np.triu_indices(32, 1)]
    assert np.abs(pairs).max() < stats.norm.isf(FALSE_ALARM / 2 / len(pairs))
    before_after = (signs[:-1].T @ signs[1:] / np.sqrt(len(signs) - 1)).ravel()
    assert np.abs(before_after).max() < stats.norm.isf(FALSE_ALARM / 2 / 1024)


@pytest.mark.parametrize("shift", [0, 8, 16, 22])
def test_neighbouring_words_fill_the_square(words, shift):
    # 10 bits of a word beside those of the next: 2^20 cells, a chi-square test of two-dimensional uniformity.
    cells = (words >> np.uint32(shift)) & np.uint32(1023)
    counts = np.bincount((cells[:, :-1].astype(np.int64) * 1024 + cells[:, 1:]).ravel(), minlength=2**20)
    expected = counts.sum() / 2**20
    statistic = np.sum((counts - expected) ** 2) / expected
    assert FALSE_ALARM < stats.chi2.cdf(statistic, 2**20 - 1) < 1 - FALSE_ALARM


def test_one_bit_of_the_key_changes_half_of_the_words(words):
    """Keys 0 … 255 differ in few bits; their words must share nothing."""
    near = words[KEYS:]
    differing = np.bitwise_count(near[:, None, :256] ^ near[None, :, :256]).astype(np.float64)
    rows, columns = np.triu_indices(KEYS, 1)
    z = (differing[rows, columns].mean(axis=1) - 16) / np.sqrt(8 / 256)
    assert np.abs(z).max() < stats.norm.isf(FALSE_ALARM / 2 / len(z))


def test_a_key_gives_its_numbers_alone_and_in_company():
    keys = jax.random.split(jax.random.key(3), 5)
    together = jax.jit(jax.vmap(lambda key: laplace(key, 1000, "hash")))(keys)
    for key, row in zip(keys, together, strict=True):
        np.testing.assert_array_equal(jax.jit(lambda key: laplace(key, 1000, "hash"))(key), row)
    shorter = jax.jit(lambda key: laplace(key, 10, "hash"))(keys[0])
    np.testing.assert_allclose(shorter, np.asarray(together)[0, :10], rtol=1e-6)


def test_words_are_those_of_plain_integers():
    key = jax.random.key(5)
    first, second = (int(word) for word in jax.random.bits(key, (2,), jnp.uint32))

    def mixed(x):
        x = (x ^ x >> 16) * 0x21F0AAAD & 0xFFFFFFFF
        x = (x ^ x >> 15) * 0x735A2D97 & 0xFFFFFFFF
        return x ^ x >> 15

    expected = [mixed((mixed(counter ^ first) + second) & 0xFFFFFFFF) for counter in range(100)]
    assert hashed_bits(key, 100).tolist() == expected


def test_the_extremes_are_finite_numbers():
    ends = _from_bits(jnp.asarray([0, 1, 2**32 - 1, 2**32 - 2], jnp.uint32))
    np.testing.assert_allclose(ends, [-22.18071, 22.18071, 0, 0], atol=1e-5)


@pytest.mark.parametrize("name", NOISE_GENERATORS)
def test_releases_are_drawn_by_the_generator_that_is_asked_for(name):
    key, update = jax.random.key(2), jnp.zeros(500)
    released = jax.jit(lambda key: privatize(key, update, 2.0, 0.5, noise_generator=name))(key)
    np.testing.assert_array_equal(released, jax.jit(lambda key: laplace(key, 500, name) * 0.25)(key))


def test_an_unknown_generator_is_named():
    with pytest.raises(ValueError, match="noise_generator: must be one of threefry, hash, not 'rbg'"):
        laplace(jax.random.key(0), 3, "rbg")


def test_a_spec_says_what_draws_its_noise():
    plan = make_plan(
        parse({"policy": [{"name": "random"}], "privacy": {"noise_generator": list(NOISE_GENERATORS)}})
    )
    made = [plan.study.kind.simulation(plan.study, group, DataCache()).config for group in plan.groups]
    assert [dict(config.mechanism.statics)["noise_generator"] for config in made] == list(NOISE_GENERATORS)
    with pytest.raises(ValueError, match="noise_generator"):
        parse({"policy": [{"name": "random"}], "privacy": {"noise_generator": "philox"}})
