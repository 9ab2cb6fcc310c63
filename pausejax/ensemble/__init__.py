"""Simulates ensemble federated learning under a server-to-client budget: EFL-FG, FedBoost, and baselines.

The arms are pre-trained models, and the budget limits the cost of the models that the server sends to the
clients. Many runs are simulated at once. The last axis of every array is that of the runs.
"""

from pausejax.ensemble.experts import EXPERT_NAMES, NUM_EXPERTS, fit_pool, stream_length
from pausejax.ensemble.policies import ENSEMBLE_POLICIES
from pausejax.ensemble.policy import Choice, EnsemblePolicy, Feedback
from pausejax.ensemble.pool import Pool, make_pool
from pausejax.ensemble.regression_data import REGRESSION_DATASETS, RegressionData, load_regression
from pausejax.ensemble.simulate import Runs, one_pass, simulate

__all__ = [
    "ENSEMBLE_POLICIES",
    "EXPERT_NAMES",
    "NUM_EXPERTS",
    "REGRESSION_DATASETS",
    "Choice",
    "EnsemblePolicy",
    "Feedback",
    "Pool",
    "RegressionData",
    "Runs",
    "fit_pool",
    "load_regression",
    "make_pool",
    "one_pass",
    "simulate",
    "stream_length",
]
