"""Regression from ten measurements: the progression of diabetes after one year (Efron et al. 2004)."""

import numpy as np
from sklearn.datasets import load_diabetes

import pausejax
from pausejax.data import Dataset


@pausejax.dataset
def diabetes(*, test_samples: int = 100) -> Dataset:
    """The 442 patients of scikit-learn's data set, with standardized inputs and targets."""
    inputs, targets = load_diabetes(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(targets))
    train, test = order[test_samples:], order[:test_samples]
    inputs = (inputs - inputs[train].mean(axis=0)) / inputs[train].std(axis=0)
    targets = (targets - targets[train].mean()) / targets[train].std()
    return Dataset(inputs[train], targets[train], inputs[test], targets[test])
