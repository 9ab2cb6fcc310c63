"""Local differential privacy: budget schedule, clipping, the Laplace mechanism and the leakage ledger."""

from pausejax.privacy.budget import epsilon_at, leakage, update_leakage
from pausejax.privacy.mechanism import CLIPS, Clip, clip_update, privatize
from pausejax.privacy.noise import NOISE_GENERATORS, NoiseGenerator, laplace

__all__ = [
    "CLIPS",
    "NOISE_GENERATORS",
    "Clip",
    "NoiseGenerator",
    "clip_update",
    "epsilon_at",
    "laplace",
    "leakage",
    "privatize",
    "update_leakage",
]
