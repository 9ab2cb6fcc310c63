"""Every parameter of a study: its section in the spec, its type, its range, and whether it is traced.

This table is the one place that a new parameter is added to. A traced parameter is an array axis of the
compiled program; a static one compiles anew for each value.
"""

import dataclasses
import math
from typing import Any

import numpy as np

from pausejax import data, network, parts
from pausejax.data.partition import CONCENTRATION
from pausejax.federated import models, optimizers, servers, tasks
from pausejax.privacy import CLIPS

assert data and models and optimizers and servers and tasks  # imported for the parts that they register
_LARGEST = float(np.finfo(np.float32).max)
_LARGEST_COUNT = 2**31 - 1


@dataclasses.dataclass(frozen=True)
class Parameter:
    """One parameter of a study."""

    name: str
    section: str
    default: float | int | bool | str
    help: str
    low: float = -math.inf
    high: float = math.inf
    low_open: bool = False
    """Whether `low` itself is out of range."""
    choices: tuple[str, ...] = ()
    traced: bool = False
    aliases: tuple[str, ...] = ()
    """The symbols of the papers, accepted in specs and repeated in results."""

    @property
    def kind(self) -> type:
        return type(self.default)

    def allowed(self) -> str:
        """The values that pass `problem`, in words."""
        if self.kind is bool:
            return "true or false"
        if self.choices:
            return "one of " + ", ".join(self.choices)
        if self.kind is str:
            return "a string"
        noun = "an integer" if self.kind is int else "a finite number"
        bounds = []
        if self.low > -math.inf:
            bounds.append(f"{'>' if self.low_open else '>='} {self.low}")
        if self.high < math.inf:
            bounds.append(f"<= {self.high}")
        return " ".join([noun, " and ".join(bounds)]).strip()

    def problem(self, value: Any) -> str | None:
        """Why a value is not allowed, or None."""
        if self.kind is bool:
            ok = isinstance(value, bool)
        elif self.kind is str:
            ok = isinstance(value, str) and (not self.choices or value in self.choices)
        else:
            number = (int,) if self.kind is int else (int, float)
            ok = isinstance(value, number) and not isinstance(value, bool) and abs(value) <= _LARGEST
            if ok and self.kind is int:
                ok = self.low <= value <= min(self.high, _LARGEST_COUNT)
            elif ok:
                # As the device will see it: 1 + 1e-9 is 1 there.
                seen = float(np.float32(value))
                ok = self.low <= seen <= self.high and not (self.low_open and seen == self.low)
        return None if ok else f"must be {self.allowed()}"


def _positive(name: str, section: str, default: float, help: str, **more: Any) -> Parameter:
    return Parameter(name, section, default, help, low=0, low_open=True, traced=True, **more)


def _weight(name: str, section: str, default: float, help: str, **more: Any) -> Parameter:
    return Parameter(name, section, default, help, low=0, traced=True, **more)


PARAMETERS: dict[str, Parameter] = {
    p.name: p
    for p in (
        Parameter("num_clients", "network", 30, "K, clients in the network", low=1, aliases=("K",)),
        Parameter(
            "clients_per_round", "network", 5, "m, clients that a round selects", low=1, aliases=("m",)
        ),
        Parameter("latency", "network", "two_speed", "the latency law", choices=network.LAWS),
        _positive("min_latency", "network", 0.05, "τ_min in seconds", aliases=("tau_min",)),
        _positive("fast_latency", "network", 0.2, "largest mean latency of the fast half, seconds"),
        _positive("slow_latency", "network", 0.7, "the slow half's means start above it, seconds"),
        _weight("slow_range", "network", 0.2, "width of the slow half's means, seconds"),
        _weight(
            "latency_deviation",
            "network",
            0.05,
            "standard deviation of a latency, seconds (of its logarithm for lognormal)",
        ),
        Parameter("trace_file", "network", "", "CSV or .npy of latencies [T, K], for the law trace"),
        Parameter("dataset", "data", "digits", "data set", choices=tuple(parts.everything().of("dataset"))),
        Parameter("train_samples", "data", 0, "use the first N training samples; 0: all of them", low=0),
        Parameter(
            "partition",
            "data",
            "iid",
            "who owns which sample",
            choices=tuple(parts.everything().of("partition")),
        ),
        Parameter(
            "concentration",
            "data",
            CONCENTRATION,
            "Dirichlet partitions: the smaller, the more unequal the clients",
            low=0,
            low_open=True,
        ),
        Parameter("shards_per_client", "data", 2, "partition shards: label-sorted shards a client", low=1),
        Parameter(
            "model", "training", "mlp", "network to train", choices=tuple(parts.everything().of("model"))
        ),
        Parameter(
            "optimizer",
            "training",
            "adam",
            "local optimizer",
            choices=tuple(parts.everything().of("optimizer")),
        ),
        _positive("learning_rate", "training", 0.01, "local learning rate"),
        Parameter("momentum", "training", 0.9, "of the optimizer momentum", low=0, high=1, traced=True),
        Parameter("batch_size", "training", 20, "minibatch size", low=1),
        Parameter("local_epochs", "training", 1, "epochs over a client's data per round", low=1),
        Parameter("max_steps", "training", 100, "at most so many minibatches per round", low=1),
        _weight("proximal_weight", "training", 0.0, "FedProx: weight of ½‖w - w_t‖²"),
        Parameter("persist_optimizer", "training", False, "keep each client's optimizer state over rounds"),
        Parameter("private", "privacy", True, "clip and noise every update"),
        _positive("privacy_budget", "privacy", 40.0, "ε̄, a client's leakage limit", aliases=("eps_bar",)),
        _positive("budget_decay", "privacy", 0.04, "η, how fast the budget is spent", aliases=("eta",)),
        _positive("sensitivity", "privacy", 0.012, "Δf, twice the clipping bound", aliases=("delta_f",)),
        Parameter("clip", "privacy", "coordinate", "what is clipped", choices=CLIPS),
        _weight("generalization_weight", "reward", 100.0, "α of (9)", aliases=("alpha",)),
        Parameter(
            "generalization_exponent",
            "reward",
            2.0,
            "β of (8)",
            low=1,
            low_open=True,
            traced=True,
            aliases=("beta",),
        ),
        _weight("privacy_weight", "reward", 5.0, "γ of (9)", aliases=("gamma",)),
        _positive("exploitation_gain", "reward", 1.0, "ζ, multiplies the mean in (13)", aliases=("zeta",)),
        Parameter(
            "clock",
            "reward",
            "paper",
            "terms of round t - 1, or t as the paper's code",
            choices=("paper", "reference"),
        ),
        Parameter("selector", "selection", "exact", "argmax of (14)", choices=("exact", "brute")),
        Parameter("annealing_steps", "selection", 500, "J", low=0, aliases=("J",)),
        _positive("temperature_divisor", "selection", 1.0, "κ", aliases=("kappa",)),
        _positive("temperature_margin", "selection", 1e-3, "ω of (19)", aliases=("omega",)),
        _positive("deadline", "selection", 1.0, "FedCS: seconds that a round may last"),
        Parameter(
            "num_candidates",
            "selection",
            0,
            "FedCS, Power-of-Choice: clients that are asked; 0: all K, or 2m",
            low=0,
        ),
        Parameter("exploration", "selection", 0.9, "Oort: ε at first", low=0, high=1, traced=True),
        Parameter("exploration_decay", "selection", 0.98, "Oort: factor on ε", low=0, high=1, traced=True),
        Parameter("min_exploration", "selection", 0.2, "Oort: the least ε", low=0, high=1, traced=True),
        _weight("straggler_penalty", "selection", 2.0, "Oort: exponent on T / τ of the slow"),
        _positive("pacer_step", "selection", 0.25, "Oort: Δ of the pacer, seconds"),
        Parameter("pacer_window", "selection", 20, "Oort: rounds in a window of the pacer", low=1),
    )
}
"""By name. Names are unique over all sections, so that a policy's table can override any of them."""

SECTIONS: tuple[str, ...] = tuple(dict.fromkeys(p.section for p in PARAMETERS.values()))

ALIASES: dict[str, str] = {
    **{alias: p.name for p in PARAMETERS.values() for alias in p.aliases},
    "α": "generalization_weight",
    "β": "generalization_exponent",
    "γ": "privacy_weight",
    "ζ": "exploitation_gain",
    "η": "budget_decay",
    "κ": "temperature_divisor",
    "ω": "temperature_margin",
    "ε̄": "privacy_budget",
    "Δf": "sensitivity",
    "τ_min": "min_latency",
}
"""Symbol -> name."""

CONDITIONS: dict[str, tuple[str, frozenset[str]]] = {
    name: (
        "partition",
        frozenset(law for law, part in parts.everything().of("partition").items() if name in part.parameters),
    )
    for name in ("concentration", "shards_per_client")
}
"""name -> (another parameter, values of it): the first is read only where the other has such a value."""

# Read by nothing but the policies, so a policy that does not take them has no such axis.
POLICY_SECTIONS = ("selection",)
# Read by nothing in mode "bandit".
LEARNING_SECTIONS = ("data", "training")
LEARNING_ONLY = frozenset({"private", "sensitivity", "clip"})
