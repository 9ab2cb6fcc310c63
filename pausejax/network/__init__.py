"""The network of the clients: latency laws, availability, and endings of rounds."""

from pausejax.network.availability import Availability, always, availability_trace, bernoulli, markov
from pausejax.network.check import checked_availability, checked_ending, checked_law
from pausejax.network.endings import Close, Ending, Work, buffered, deadline, first
from pausejax.network.endings import all as all_clients
from pausejax.network.law import Law, expectation, expected_latency, expected_reward, floored
from pausejax.network.laws import Speeds, lognormal, shifted_exponential, trace, two_speed

__all__ = [
    "Availability",
    "Close",
    "Ending",
    "Law",
    "Speeds",
    "Work",
    "all_clients",
    "always",
    "availability_trace",
    "bernoulli",
    "buffered",
    "checked_availability",
    "checked_ending",
    "checked_law",
    "deadline",
    "expectation",
    "expected_latency",
    "expected_reward",
    "first",
    "floored",
    "lognormal",
    "markov",
    "shifted_exponential",
    "trace",
    "two_speed",
]
