"""Names that specs and results need for themselves."""

from pausejax.analysis.schema import COLUMNS

COORDINATES = (
    "run",
    "round",
    "eval",
    "slot",
    "client",
    "model_weight",
    "client_weight",
    "eval_round",
    "eval_elapsed",
    "policy",
    "algorithm",
    "seed",
    "identity",
    "study",
    "sources",
    "unread_parameters",
)
"""Names of dimensions and coordinates of results, besides parameters."""
_KEYS = ("use", "quantities", "seeds", "zip", "sampling", "name", "label")
RESERVED = frozenset((*_KEYS, *COORDINATES, *COLUMNS))
"""Names that no parameter may have: keys of specs, and dimensions, coordinates and columns of results."""
