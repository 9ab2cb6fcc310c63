"""Which m clients maximize (14): exactly, by brute force, and by annealing."""

from pausejax.selection.anneal import anneal, anneal_trace, vanilla_anneal
from pausejax.selection.brute import brute_force
from pausejax.selection.exact import Selection, best_set

__all__ = ["Selection", "anneal", "anneal_trace", "best_set", "brute_force", "vanilla_anneal"]
