"""Differential privacy: mechanisms, budget schedule, clipping and the ledger of leakage."""

from pausejax.privacy.budget import epsilon_at, leakage, update_leakage
from pausejax.privacy.gaussian import gaussian_epsilon
from pausejax.privacy.mechanism import (
    CLIPS,
    Clip,
    Leakage,
    Mechanism,
    checked_mechanism,
    clip_l2,
    clip_update,
    privatize,
)
from pausejax.privacy.mechanisms import PROTECTED
from pausejax.privacy.noise import NOISE_GENERATORS, NoiseGenerator, laplace

__all__ = [
    "CLIPS",
    "NOISE_GENERATORS",
    "PROTECTED",
    "Clip",
    "Leakage",
    "Mechanism",
    "NoiseGenerator",
    "checked_mechanism",
    "clip_l2",
    "clip_update",
    "epsilon_at",
    "gaussian_epsilon",
    "laplace",
    "leakage",
    "privatize",
    "update_leakage",
]
