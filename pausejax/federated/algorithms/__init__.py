"""Federated algorithms: how clients train, which update they send, and how the server uses it."""

from pausejax.federated.algorithms.base import Algorithm, Arrivals, Local
from pausejax.federated.algorithms.check import checked_algorithm
from pausejax.federated.algorithms.fedavg import fedavg
from pausejax.federated.algorithms.feddyn import feddyn
from pausejax.federated.algorithms.fedper import fedper
from pausejax.federated.algorithms.fedprox import fedprox
from pausejax.federated.algorithms.scaffold import scaffold

__all__ = [
    "Algorithm",
    "Arrivals",
    "Local",
    "checked_algorithm",
    "fedavg",
    "feddyn",
    "fedper",
    "fedprox",
    "scaffold",
]
