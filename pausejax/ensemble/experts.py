"""Fits the paper's pool of regressors: twenty kernel ridge models and two ReLU networks (EFL-FG, §IV)."""

import warnings
from typing import Literal, get_args

import numpy as np

from pausejax.ensemble.networks import fit_network
from pausejax.ensemble.pool import Pool, make_pool
from pausejax.ensemble.regression_data import RegressionData, checked

WIDTHS = (0.01, 0.1, 1.0, 10.0, 100.0)
"""Bandwidths of the Gaussian and Laplacian kernels, and slopes of the sigmoid kernels."""
DEGREES = (1, 2, 3, 4, 5)
HIDDEN_LAYERS = ((25,), (25, 25))
EXPERT_NAMES: tuple[str, ...] = (
    *(f"gaussian {s:g}" for s in WIDTHS),
    *(f"laplacian {s:g}" for s in WIDTHS),
    *(f"polynomial {g}" for g in DEGREES),
    *(f"sigmoid {s:g}" for s in WIDTHS),
    *(f"network {len(hidden)}x{hidden[0]}" for hidden in HIDDEN_LAYERS),
)
NUM_EXPERTS = len(EXPERT_NAMES)

FeatureScaling = Literal["min_max", "row_norm"]
KernelParameters = Literal["coefficients", "coefficients_and_points"]
_BLOCK = 4096


def fit_pool(
    data: RegressionData,
    *,
    fit_fraction: float = 0.1,
    seed: int = 0,
    ridge: float = 1.0,
    feature_scaling: FeatureScaling = "min_max",
    kernel_parameters: KernelParameters = "coefficients_and_points",
) -> Pool:
    """Fits the 22 experts on a random part of the data, and predicts the rest of the data, the stream.

    Targets are mapped to [0, 1] by the smallest and largest target of the data set, and predictions are
    clipped to [0, 1]. So every squared error is in [0, 1], as condition (a2) requires.

    Args:
      data: the data set, with n rows and d features.
      fit_fraction: the share of rows on which the experts are fitted.
      seed: the seed of the choice of these rows and of the networks' initial weights.
      ridge: the regularization of the kernel models (`alpha` of scikit-learn, whose default is 1).
      feature_scaling: `"min_max"` maps each feature to [0, 1] over the fitted rows; `"row_norm"` divides all
        features by the largest Euclidean norm of a row.
      kernel_parameters: the numbers that count as a kernel model's parameters. `"coefficients_and_points"`
        counts all numbers that a client needs to predict: the dual coefficients and their rows, d + 1 numbers
        per fitted row. `"coefficients"` counts only the dual coefficients, one number per fitted row.

    Raises:
      ValueError: an argument is out of range, or the data are not finite numbers [n, d] and [n].
    """
    if not 0 < fit_fraction < 1:
        raise ValueError(f"fit_fraction: must be > 0 and < 1, not {fit_fraction}")
    if ridge <= 0:
        raise ValueError(f"ridge: must be > 0, not {ridge}")
    _check_choice("feature_scaling", feature_scaling, get_args(FeatureScaling))
    _check_choice("kernel_parameters", kernel_parameters, get_args(KernelParameters))
    data = checked(data, f"dataset {data.name!r}")
    count = len(data.targets)
    num_fit = count - stream_length(count, fit_fraction)
    if not 2 <= num_fit < count:
        raise ValueError(
            f"fit_fraction: {fit_fraction} of {count} rows gives {num_fit} rows for the models' fit; must "
            f"give from 2 to {count - 1}"
        )
    order = np.random.default_rng(seed).permutation(count)
    fit, rest = np.sort(order[:num_fit]), np.sort(order[num_fit:])
    features = _scale(data.features, fit, feature_scaling)
    low, high = data.targets.min(), data.targets.max()
    if not high > low:
        raise ValueError(f"dataset: the targets of {data.name!r} must differ, but all equal {low}")
    targets = (data.targets - low) / (high - low)

    predictions = _kernel_models(features[fit], targets[fit], features[rest], ridge)
    per_row = 1 if kernel_parameters == "coefficients" else features.shape[1] + 1
    parameters = [num_fit * per_row] * len(predictions)
    for index, hidden in enumerate(HIDDEN_LAYERS):
        network = fit_network(features[fit], targets[fit], features[rest], hidden=hidden, seed=seed + index)
        predictions.append(network.predictions)
        parameters.append(network.num_parameters)
    return make_pool(np.clip(np.stack(predictions, axis=1), 0, 1), targets[rest], parameters, EXPERT_NAMES)


def stream_length(num_rows: int, fit_fraction: float = 0.1) -> int:
    """Returns the number of rows in the stream: the rows on which no model is fitted."""
    return num_rows - round(fit_fraction * num_rows)


def _check_choice(name: str, value: str, allowed: tuple[str, ...]) -> None:
    if value not in allowed:
        raise ValueError(f"{name}: must be one of {', '.join(allowed)}, not {value!r}")


def _scale(features: np.ndarray, fit: np.ndarray, scaling: FeatureScaling) -> np.ndarray:
    if scaling == "row_norm":
        return features / np.linalg.norm(features, axis=1).max()
    low, high = features[fit].min(axis=0), features[fit].max(axis=0)
    return (features - low) / np.where(high > low, high - low, 1.0)


def _kernel_models(
    fit: np.ndarray, targets: np.ndarray, stream: np.ndarray, ridge: float
) -> list[np.ndarray]:
    """Returns the predictions of the twenty kernel models, in the order of their names.

    All kernels use the same pairwise distances and products.
    """
    # Imported here because the import takes a second. At the head of the module it would slow down every
    # command.
    from sklearn.kernel_ridge import KernelRidge

    kernels = _kernels(fit.shape[1])
    geometry = _geometry(fit, fit)
    models = []
    with warnings.catch_warnings():
        # The sigmoid kernels are indefinite. scikit-learn then solves by least squares, with a warning.
        warnings.filterwarnings("ignore", message="Singular matrix")
        for source, kernel in kernels:
            models.append(
                KernelRidge(alpha=ridge, kernel="precomputed").fit(kernel(geometry[source]), targets)
            )
    blocks = []
    for start in range(0, len(stream), _BLOCK):
        geometry = _geometry(stream[start : start + _BLOCK], fit)
        blocks.append(
            [
                model.predict(kernel(geometry[source]))
                for (source, kernel), model in zip(kernels, models, strict=True)
            ]
        )
    return [np.concatenate(parts) for parts in zip(*blocks, strict=True)]


def _geometry(rows: np.ndarray, points: np.ndarray) -> dict[str, np.ndarray]:
    from sklearn.metrics.pairwise import euclidean_distances, manhattan_distances

    return {
        "squared": euclidean_distances(rows, points, squared=True),
        "manhattan": manhattan_distances(rows, points),
        "product": rows @ points.T,
    }


def _kernels(num_features: int) -> list:
    """Returns each kernel as (name of its geometry, function); offsets and 1/d are as in scikit-learn."""
    return [
        *(("squared", lambda z, s=s: np.exp(-z / (2 * s**2))) for s in WIDTHS),
        *(("manhattan", lambda z, s=s: np.exp(-z / s)) for s in WIDTHS),
        *(("product", lambda z, g=g: (z / num_features + 1) ** g) for g in DEGREES),
        *(("product", lambda z, s=s: np.tanh(s * z + 1)) for s in WIDTHS),
    ]
