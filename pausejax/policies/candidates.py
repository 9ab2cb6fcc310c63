"""Computes the number of candidates of the policies that choose among random candidates."""

from typing import Annotated

from pausejax.parts import Parameter

NumCandidates = Annotated[
    int,
    Parameter(
        help="FedCS, Power-of-Choice: number of candidate clients; 0: K for FedCS, 2 m for Power-of-Choice",
        low=0,
    ),
]
NUM_CANDIDATES = 0


def number_asked(num_candidates: int, otherwise: int, clients_per_round: int, num_clients: int) -> int:
    """Returns the number of candidates: `num_candidates`, or `otherwise` if `num_candidates` is 0.

    Raises:
      ValueError: the number is below m or above K.
    """
    asked = num_candidates or otherwise
    if not clients_per_round <= asked <= num_clients:
        raise ValueError(
            f"num_candidates: must be 0, or from clients_per_round = {clients_per_round} to num_clients = "
            f"{num_clients}, not {num_candidates}"
        )
    return asked
