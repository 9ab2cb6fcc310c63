"""The pool of 22 experts against scikit-learn's own kernels, and its promises."""

import jax
import numpy as np
import pytest
from sklearn.kernel_ridge import KernelRidge

from pausejax.ensemble import RegressionData, fit_pool, load_regression, stream_length
from pausejax.ensemble.experts import WIDTHS, _scale
from pausejax.ensemble.networks import Network, fit_network


@pytest.fixture(scope="module")
def diabetes():
    return load_regression("diabetes")


@pytest.fixture(scope="module")
def pool(diabetes):
    return fit_pool(diabetes, seed=3)


def split(data, seed, fraction=0.1):
    order = np.random.default_rng(seed).permutation(len(data.targets))
    count = round(fraction * len(order))
    return np.sort(order[:count]), np.sort(order[count:])


def test_pool_has_the_papers_models(pool):
    kinds = [name.split()[0] for name in pool.names]
    for kind in ("gaussian", "laplacian", "polynomial", "sigmoid"):
        assert kinds.count(kind) == 5
    assert pool.names[-2:] == ("network 1x25", "network 2x25")
    assert pool.predictions.shape == (398, 22) and pool.targets.shape == (398,)
    assert ((pool.predictions >= 0) & (pool.predictions <= 1)).all()
    error = (pool.predictions - pool.targets[:, None]) ** 2
    assert ((error >= 0) & (error <= 1)).all()


def test_predictions_are_scikit_learns(diabetes, pool):
    fit, rest = split(diabetes, 3)
    low, high = diabetes.features[fit].min(axis=0), diabetes.features[fit].max(axis=0)
    x = (diabetes.features - low) / (high - low)
    y = (diabetes.targets - 25) / (346 - 25)
    np.testing.assert_allclose(pool.targets, y[rest], rtol=1e-6)
    models = [KernelRidge(kernel="rbf", gamma=1 / (2 * s**2)) for s in WIDTHS]
    models += [KernelRidge(kernel="laplacian", gamma=1 / s) for s in WIDTHS]
    models += [KernelRidge(kernel="polynomial", degree=g) for g in (1, 2, 3, 4, 5)]
    models += [KernelRidge(kernel="sigmoid", gamma=s) for s in WIDTHS]
    for k, model in enumerate(models):
        expected = np.clip(model.fit(x[fit], y[fit]).predict(x[rest]), 0, 1)
        np.testing.assert_allclose(pool.predictions[:, k], expected, atol=1e-4, err_msg=pool.names[k])


@pytest.mark.parametrize("ridge", [0.05, 20.0])
def test_kernel_models_are_regularized_as_they_are_told(diabetes, ridge):
    pool = fit_pool(diabetes, seed=3, ridge=ridge)
    fit, rest = split(diabetes, 3)
    low, high = diabetes.features[fit].min(axis=0), diabetes.features[fit].max(axis=0)
    x, y = (diabetes.features - low) / (high - low), (diabetes.targets - 25) / 321
    # In its dual form: coefficients (K + ridge I)⁻¹ y, of the second Laplacian kernel.
    distance = np.abs(x[:, None] - x[fit][None]).sum(axis=2)
    kernel = np.exp(-distance / WIDTHS[2])
    coefficients = np.linalg.solve(kernel[fit] + ridge * np.eye(len(fit)), y[fit])
    np.testing.assert_allclose(pool.predictions[:, 7], np.clip(kernel[rest] @ coefficients, 0, 1), atol=1e-5)


@pytest.mark.slow
def test_networks_learn_what_no_constant_knows():
    """A smooth function of two features, half of it to learn from: most of the variance is explained."""
    rng = np.random.default_rng(1)
    features = rng.uniform(-1, 1, (600, 2))
    data = RegressionData("smooth", features, np.sin(2 * features[:, 0]) + features[:, 1] ** 2)
    pool = fit_pool(data, fit_fraction=0.5)
    error = ((pool.predictions[:, -2:] - pool.targets[:, None]) ** 2).mean(axis=0)
    assert (error < 0.2 * pool.targets.var()).all(), error / pool.targets.var()


def test_parameters_are_counted_as_documented(diabetes, pool):
    # 44 fitted rows of 10 features; networks 10-25-1 and 10-25-25-1 with biases.
    networks = [10 * 25 + 25 + 25 + 1, 10 * 25 + 25 + 25 * 25 + 25 + 25 + 1]
    np.testing.assert_array_equal(pool.parameters, [44 * 11] * 20 + networks)
    np.testing.assert_allclose(pool.costs, np.array([484] * 20 + networks) / 951)
    fewer = fit_pool(diabetes, seed=3, kernel_parameters="coefficients")
    np.testing.assert_array_equal(fewer.parameters, [44] * 20 + networks)


def test_pool_is_a_function_of_its_seed(diabetes, pool):
    again, other = fit_pool(diabetes, seed=3), fit_pool(diabetes, seed=4)
    np.testing.assert_array_equal(again.predictions, pool.predictions)
    assert not np.array_equal(other.targets, pool.targets)


def test_row_norm_scaling(diabetes):
    pool = fit_pool(diabetes, seed=3, feature_scaling="row_norm")
    fit, rest = split(diabetes, 3)
    x = diabetes.features / np.linalg.norm(diabetes.features, axis=1).max()
    y = (diabetes.targets - 25) / 321
    expected = KernelRidge(kernel="rbf", gamma=50).fit(x[fit], y[fit]).predict(x[rest])
    np.testing.assert_allclose(pool.predictions[:, 1], np.clip(expected, 0, 1), atol=1e-5)


def test_networks_are_fitted_from_their_own_seeds(diabetes, pool):
    fit, rest = split(diabetes, 3)
    low, high = diabetes.features[fit].min(axis=0), diabetes.features[fit].max(axis=0)
    x, y = (diabetes.features - low) / (high - low), (diabetes.targets - 25) / 321
    for place, hidden in enumerate(((25,), (25, 25))):
        network = fit_network(x[fit], y[fit], x[rest], hidden=hidden, seed=3 + place)
        expected = np.clip(network.predictions, 0, 1)
        np.testing.assert_allclose(pool.predictions[:, 20 + place], expected, atol=1e-5)


def test_a_network_takes_a_thousand_steps_of_adam():
    """By hand, from the weights that it starts with; its last step changes a prediction by 10⁻³ yet."""
    rng = np.random.default_rng(5)
    x, y = rng.normal(size=(6, 2)), rng.random(6)
    params = Network((3,)).init(jax.random.key(7), x.astype(np.float32))["params"]
    layers = [params["Dense_0"], params["Dense_1"]]
    w = [np.asarray(layer[leaf], np.float64) for layer in layers for leaf in ("kernel", "bias")]
    first, second = [np.zeros_like(a) for a in w], [np.zeros_like(a) for a in w]
    for step in range(1, 1001):
        hidden = np.maximum(x @ w[0] + w[1], 0)
        error = 2 * (hidden @ w[2] + w[3] - y[:, None]) / len(y)
        back = (error @ w[2].T) * (hidden > 0)
        for place, g in enumerate((x.T @ back, back.sum(0), hidden.T @ error, error.sum(0))):
            first[place] = 0.9 * first[place] + 0.1 * g
            second[place] = 0.999 * second[place] + 0.001 * g**2
            change = first[place] / (1 - 0.9**step) / (np.sqrt(second[place] / (1 - 0.999**step)) + 1e-8)
            w[place] = w[place] - 0.01 * change
    found = fit_network(x, y, x, hidden=(3,), seed=7)
    expected = (np.maximum(x @ w[0] + w[1], 0) @ w[2] + w[3])[:, 0]
    np.testing.assert_allclose(found.predictions, expected, atol=1e-4)
    assert found.num_parameters == 3 * 2 + 3 + 3 + 1


def test_features_that_are_constant_where_it_is_fitted_are_only_moved():
    features = np.array([[1.0, 5.0], [3.0, 5.0], [2.0, 9.0]])
    scaled = _scale(features, np.array([0, 1]), "min_max")
    np.testing.assert_array_equal(scaled, [[0, 0], [1, 0], [0.5, 4]])


def test_a_stream_is_what_no_model_is_fitted_on():
    assert stream_length(442) == 398 and stream_length(10, 0.5) == 5


def test_constant_features_do_no_harm():
    rng = np.random.default_rng(0)
    features = np.column_stack([rng.random(60), np.full(60, 5.0)])
    pool = fit_pool(RegressionData("flat", features, rng.random(60)))
    assert np.isfinite(pool.predictions).all()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"fit_fraction": 1.0}, "fit_fraction: must be > 0 and < 1, not 1.0"),
        ({"fit_fraction": 0.001}, "fit_fraction: 0.001 of 442 rows gives"),
        ({"ridge": 0.0}, "ridge: must be > 0, not 0.0"),
        ({"feature_scaling": "zscore"}, "feature_scaling: must be one of min_max, row_norm, not 'zscore'"),
        ({"kernel_parameters": "all"}, "kernel_parameters: must be one of coefficients"),
    ],
)
def test_bad_options_are_named(diabetes, options, message):
    with pytest.raises(ValueError, match=message):
        fit_pool(diabetes, **options)


def test_constant_targets_are_refused():
    with pytest.raises(ValueError, match=r"dataset: the targets of 'flat' must differ, but all equal 2\.0"):
        fit_pool(RegressionData("flat", np.zeros((20, 1)), np.full(20, 2.0)))
