"""Local differential privacy: budget schedule, clipping, the Laplace mechanism and the leakage ledger."""

from pausejax.privacy.budget import epsilon_at, leakage, update_leakage
from pausejax.privacy.mechanism import CLIPS, Clip, clip_update, privatize

__all__ = ["CLIPS", "Clip", "clip_update", "epsilon_at", "leakage", "privatize", "update_leakage"]
