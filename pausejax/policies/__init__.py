"""Client-selection policies; specs name a policy by the name of its function."""

from pausejax.policies.bandit_generalization import bandit_generalization
from pausejax.policies.base import Clients, Cohort, Feedback, Policy, View, cohort, first_of, memoryless
from pausejax.policies.check import problems_of
from pausejax.policies.clustered import clustered_similarity, clustered_size
from pausejax.policies.cs_ucb import cs_ucb
from pausejax.policies.fastest import fastest
from pausejax.policies.fedavg import fedavg
from pausejax.policies.fedcs import fedcs
from pausejax.policies.oort import oort
from pausejax.policies.pause import pause
from pausejax.policies.power_of_choice import power_of_choice
from pausejax.policies.random import random
from pausejax.policies.sa_pause import sa_pause
from pausejax.policies.value_per_second import value_per_second
from pausejax.policies.vanilla_sa import vanilla_sa

__all__ = [
    "Clients",
    "Cohort",
    "Feedback",
    "Policy",
    "View",
    "bandit_generalization",
    "clustered_similarity",
    "clustered_size",
    "cohort",
    "cs_ucb",
    "fastest",
    "fedavg",
    "fedcs",
    "first_of",
    "memoryless",
    "oort",
    "pause",
    "power_of_choice",
    "problems_of",
    "random",
    "sa_pause",
    "value_per_second",
    "vanilla_sa",
]
