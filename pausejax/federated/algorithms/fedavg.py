"""FedAvg (McMahan et al. 2017)."""

from pausejax import parts
from pausejax.federated.algorithms.base import Algorithm


@parts.algorithm
def fedavg() -> Algorithm:
    """Clients send the change of their parameters, and the server adds the mean (McMahan et al. 2017)."""
    return Algorithm()
