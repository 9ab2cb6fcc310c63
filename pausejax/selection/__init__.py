"""Which m clients maximize (14): exactly, by brute force, and by annealing."""

from pausejax.selection.brute import brute_force
from pausejax.selection.exact import Selection, best_set

__all__ = ["Selection", "best_set", "brute_force"]
