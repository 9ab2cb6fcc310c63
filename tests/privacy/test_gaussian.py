"""Gaussian mechanisms: ε against `dp-accounting` and SciPy, and an attack on releases."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import integrate, stats

from pausejax import parts, privacy
from pausejax.privacy.audit import epsilon_lower_bound

RELEASES = 300_000


def mechanism(name, **values):
    return parts.find("mechanism", name).build(**values)


@pytest.mark.parametrize("delta", [1e-3, 1e-5, 1e-9])
@pytest.mark.parametrize("multiplier", [0.3, 1.0, 4.0, 30.0])
@pytest.mark.parametrize("count", [1, 7, 200])
def test_epsilon_is_that_of_an_accountant(count, multiplier, delta):
    accounting = pytest.importorskip("dp_accounting")
    from dp_accounting.pld import PLDAccountant
    from dp_accounting.rdp import RdpAccountant

    found = float(privacy.gaussian_epsilon(np.array(count), np.array(multiplier), np.array(delta)))
    event = accounting.SelfComposedDpEvent(accounting.GaussianDpEvent(multiplier), count)
    loose = RdpAccountant().compose(event).get_epsilon(delta)
    assert found <= loose * (1 + 1e-6)
    if loose < 300:  # beyond, the grid of privacy losses takes gigabytes
        grid = 1e-3 if loose > 1 else 1e-5
        tight = PLDAccountant(value_discretization_interval=grid).compose(event).get_epsilon(delta)
        assert found == pytest.approx(tight, rel=1e-5, abs=1e-5)


@pytest.mark.parametrize(("count", "multiplier"), [(1, 1.0), (5, 2.0), (3, 0.7)])
def test_delta_at_epsilon_is_the_integral_over_the_privacy_loss(count, multiplier):
    """δ = E[max(0, 1 - e^(ε - L))], where the loss L of T releases is normal."""
    for delta in (1e-2, 1e-5):
        epsilon = float(privacy.gaussian_epsilon(np.array(count), np.array(multiplier), np.array(delta)))
        mean = count / (2 * multiplier**2)
        loss = stats.norm(mean, np.sqrt(2 * mean))
        beyond = integrate.quad(
            lambda x, e=epsilon, d=loss: -np.expm1(e - x) * d.pdf(x), epsilon, mean + 40 * loss.std()
        )
        assert beyond[0] == pytest.approx(delta, rel=1e-4)


def test_epsilon_grows_with_releases_and_broadcasts():
    counts = np.arange(40)[None, :]
    multipliers = np.array([[0.5], [2.0]], np.float32)
    found = privacy.gaussian_epsilon(counts, multipliers, np.float32(1e-5))
    assert found.shape == (2, 40) and found.dtype == np.float32
    assert (found[:, 0] == 0).all() and (np.diff(found) > 0).all() and (found[0, 1:] > found[1, 1:]).all()
    # So much noise that δ covers everything.
    assert privacy.gaussian_epsilon(np.array(1), np.array(1e6), np.array(1e-5)) < 1e-20


@pytest.mark.parametrize("compiled", [lambda function: function, jax.jit])
@pytest.mark.parametrize("clip_norm", [1e-15, 1.0, 1e15])
@pytest.mark.parametrize("entry", [0.0, 1e-38, 5e37, 1e38, 3e38])
def test_no_entry_is_too_small_or_large_to_be_clipped(entry, clip_norm, compiled):
    """The reciprocal of 2^127 is 0 in float32, and the square of 1e-38 is too."""
    clipped = compiled(privacy.clip_l2)(jnp.full(50, entry, jnp.float32), clip_norm)
    assert np.linalg.norm(np.asarray(clipped, np.float64)) <= clip_norm * (1 + 1e-6)


@pytest.mark.parametrize("scale", [0.0, 1e-30, 1e-3, 1.0, 1e25])
def test_clipping_bounds_the_norm_whatever_the_size(scale):
    update = jnp.asarray(np.random.default_rng(0).normal(size=50) * scale, jnp.float32)
    clipped = np.asarray(privacy.clip_l2(update, 0.5), np.float64)
    assert np.linalg.norm(clipped) <= 0.5 * (1 + 1e-6)
    exact = np.asarray(update, np.float64)
    expected = exact * min(1, 0.5 / max(np.linalg.norm(exact), 1e-300))
    np.testing.assert_allclose(clipped, expected, rtol=1e-5)


def audit(first, second, release, spread, count):
    """A lower bound of ε for `count` releases of one of two inputs; 99.9 % confidence."""

    def score(key, update):
        """Log-likelihood ratio of the two inputs, up to a constant."""
        total = 0.0
        for turn in range(count):
            seen = release(jax.random.fold_in(key, turn), update)
            total += jnp.sum(seen * (first - second)) / spread**2
        return total

    keys = jax.random.split(jax.random.key(0), (2, RELEASES))
    both = zip(keys, (first, second), strict=True)
    scores = [np.asarray(jax.jit(jax.vmap(score, (0, None)))(k, update)) for k, update in both]
    return epsilon_lower_bound(*scores)


@pytest.mark.slow
@pytest.mark.parametrize("count", [1, 3])
def test_attacks_on_local_noise_stay_below_the_ledger(count):
    """The worst pair are two clipped updates in opposite directions. δ = 1e-9 hides nothing of it here."""
    clip_norm, multiplier = 0.5, 2.0
    made = mechanism("gaussian", clip_norm=clip_norm, noise_multiplier=multiplier, delta=1e-9)
    first = jnp.asarray([9.0, 0.0], jnp.float32)
    release = lambda key, update: made.release(key, update, jnp.int32(1))  # noqa: E731
    clipped = clip_norm * first / 9.0
    spread = multiplier * clip_norm

    def score_release(key, update):
        return release(key, 18.0 * update)

    bound = audit(clipped, -clipped, score_release, spread, count)
    spent = made.leakage(np.array([count]), 2)
    assert 0.3 * spent.release[0] < bound <= spent.release[0]
    assert spent.update[0] == spent.release[0]
    # A ledger that forgot that two updates differ by twice the norm would be found out by three releases.
    forgot = privacy.gaussian_epsilon(np.array(count), np.array(multiplier), np.array(1e-9))
    assert bound > forgot / 2


@pytest.mark.slow
def test_the_servers_noise_covers_one_clients_share_of_the_mean():
    clip_norm, multiplier = 0.5, 0.8
    values = {"clip_norm": clip_norm, "noise_multiplier": multiplier, "delta": 1e-9}
    made = mechanism("central_gaussian", clients_per_round=2, **values)
    weight = jnp.asarray([0.7, 0.3, 0.0], jnp.float32)
    update = made.release(jax.random.key(1), jnp.full(4, 9.0), jnp.int32(1))
    np.testing.assert_allclose(np.linalg.norm(update), clip_norm, rtol=1e-6)
    noise = jax.vmap(lambda key: made.server(key, 0.3 * update, weight) - 0.3 * update)(
        jax.random.split(jax.random.key(0), 20_000)
    )
    noise = np.asarray(noise, np.float64).ravel() / (multiplier * clip_norm * 0.7)
    # Kolmogorov-Smirnov on 80,000 draws, false alarm rate 1e-4
    assert stats.kstest(noise, "norm").pvalue > 1e-4
    bound = audit(
        0.7 * update, jnp.zeros(4), lambda key, mean: made.server(key, mean, weight), multiplier * 0.35, 2
    )
    spent = float(made.leakage(np.array([2]), 4).release[0])
    assert 0.3 * spent < bound <= spent


def test_a_small_cohort_takes_a_small_step_with_no_more_noise():
    """One update of five counts a fifth, and so does its noise: that of five equal ones."""
    made = mechanism("central_gaussian", clients_per_round=5, clip_norm=0.5, noise_multiplier=2.0)
    key, update = jax.random.key(3), jnp.arange(4, dtype=jnp.float32)
    one = made.server(key, update, jnp.asarray([0.0, 1.0, 0.0, 0.0, 0.0]))
    five = made.server(key, update, jnp.full(5, 0.2))
    np.testing.assert_allclose(one - 0.2 * update, five - update, rtol=1e-5, atol=1e-6)
    more = made.server(key, update, jnp.full(10, 0.1))
    np.testing.assert_allclose(more - update, (five - update) / 2, rtol=1e-5, atol=1e-6)


def test_no_mechanism_leaks_everything():
    spent = mechanism("none").leakage(np.array([[0, 3]]), 7)
    for leaked in spent:
        np.testing.assert_array_equal(leaked, [[0, np.inf]])
