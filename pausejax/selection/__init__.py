"""Selects the m clients that maximize (14), or value per second: exactly, by brute force or by annealing."""

from pausejax.selection.anneal import anneal, anneal_trace, vanilla_anneal
from pausejax.selection.brute import brute_force, brute_force_rate
from pausejax.selection.exact import Selection, best_rate, best_set

__all__ = [
    "Selection",
    "anneal",
    "anneal_trace",
    "best_rate",
    "best_set",
    "brute_force",
    "brute_force_rate",
    "vanilla_anneal",
]
