"""The budget schedule, clipping and the Laplace mechanism against closed forms and scipy."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from pausejax import privacy

positive = st.floats(1e-3, 1e3)


@settings(max_examples=50, deadline=None)
@given(positive, st.floats(1e-3, 2.0), st.integers(1, 400))
def test_scheduled_budgets_sum_to_the_ledger_and_stay_below_the_budget(budget, decay, count):
    spent = np.asarray(privacy.epsilon_at(np.arange(1, 401), budget, decay), np.float64)[:count].sum()
    ledger = float(privacy.leakage(jnp.int32(count), budget, decay))
    assert spent == pytest.approx(ledger, rel=3e-5)
    assert ledger == pytest.approx(-budget * np.expm1(-decay * count), rel=1e-5)
    assert ledger <= np.float32(budget)


def test_any_decay_is_finite():
    assert float(privacy.epsilon_at(jnp.int32(1), 40.0, 100.0)) == pytest.approx(40.0)
    assert float(privacy.epsilon_at(jnp.int32(2), 40.0, 1.0)) == pytest.approx(40 * (1 - np.exp(-1)) / np.e)


def test_nobody_has_leaked_before_the_first_round():
    assert float(privacy.leakage(jnp.int32(0), 40.0, 0.04)) == 0.0


@settings(max_examples=50, deadline=None)
@given(st.lists(st.floats(-1e6, 1e6, width=32), min_size=1, max_size=20), positive)
def test_clipping_bounds(values, sensitivity):
    update = np.zeros(20, np.float32)
    update[: len(values)] = values
    by_coordinate = np.asarray(privacy.clip_update(update, sensitivity, "coordinate"))
    assert np.abs(by_coordinate).max() <= np.float32(sensitivity) / 2
    by_vector = np.asarray(privacy.clip_update(update, sensitivity, "vector"), np.float64)
    assert np.abs(by_vector).sum() <= sensitivity / 2 * (1 + 1e-5)


def test_small_updates_pass_unclipped():
    update = jnp.asarray([0.1, -0.2, 0.05])
    for clip in privacy.CLIPS:
        np.testing.assert_array_equal(privacy.clip_update(update, 1.0, clip), update)
    np.testing.assert_array_equal(privacy.clip_update(jnp.zeros(3), 1.0, "vector"), jnp.zeros(3))


@pytest.mark.parametrize("clip", privacy.CLIPS)
def test_noise_is_laplace_of_the_stated_scale(clip):
    epsilon, sensitivity = 0.7, 0.3
    update = jnp.zeros(200_000)
    released = privacy.privatize(jax.random.key(1), update, epsilon, sensitivity, clip)
    # Kolmogorov-Smirnov, false alarm rate 1e-4; a scale off by 5 % fails it
    assert stats.kstest(np.asarray(released), "laplace", args=(0, sensitivity / epsilon)).pvalue > 1e-4
    assert stats.kstest(np.asarray(released), "laplace", args=(0, 1.05 * sensitivity / epsilon)).pvalue < 1e-4


def test_leakage_of_the_update_composes_over_coordinates_or_not():
    assert float(privacy.update_leakage(jnp.float32(2.0), 10, "coordinate")) == 20.0
    assert float(privacy.update_leakage(jnp.float32(2.0), 10, "vector")) == 2.0
    assert float(privacy.update_leakage(jnp.float32(2.0), np.int64(3 * 10**9), "coordinate")) == 6e9
    with pytest.raises(ValueError, match="clip: must be one of coordinate, vector, not 'coordinates'"):
        privacy.update_leakage(jnp.float32(2.0), 10, "coordinates")


def test_unknown_clip_is_named():
    with pytest.raises(ValueError, match="clip: must be one of coordinate, vector, not 'l2'"):
        privacy.clip_update(jnp.zeros(2), 1.0, "l2")
