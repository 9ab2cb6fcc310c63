"""Parameters of the simulation of client selection; parts declare their own parameters."""

from pausejax.bandit import Objective
from pausejax.federated.learning import BATCH_STATISTICS, LocalTraining
from pausejax.federated.precision import PRECISIONS
from pausejax.parts import Parameter, table
from pausejax.parts.signature import parameters_of

MOST_COUNTED = 2**24
"""Largest number of rounds and of clients: float32 represents all integers up to this number."""

STUDY: dict[str, Parameter] = table(
    **{
        "": {
            "rounds": Parameter(200, "rounds per run", low=1, high=MOST_COUNTED),
            "eval_every": Parameter(10, "rounds between evaluations", low=1),
            "mode": Parameter("training", "what is simulated", choices=("training", "bandit", "ensemble")),
            "name": Parameter("", "title of the study"),
            "selection_gap": Parameter(False, "record the gap of (14) to its maximum"),
            "expected_regret": Parameter(
                False, "record the regret against the largest expected reward; small networks only"
            ),
            "client_metrics": Parameter(False, "test every client on its held-out samples at the end"),
            "keep_models": Parameter(False, "keep the final model of every run in the result"),
            "stop_at_latency": Parameter(
                0.0, "end a run at this simulated time, seconds; 0: never", low=0, units="s"
            ),
        }
    }
)


def _positive(default: float, help: str, **more: str) -> Parameter:
    return _number(default, help, low_open=True, **more)


def _number(
    default: float, help: str, *, low_open: bool = False, alias: str = "", symbol: str = "", units: str = ""
) -> Parameter:
    aliases = (alias,) if alias else ()
    return Parameter(
        default, help, low=0, low_open=low_open, traced=True, aliases=aliases, symbol=symbol, units=units
    )


_TRAINING = LocalTraining
_OBJECTIVE = parameters_of(Objective, "reward")

PARAMETERS: dict[str, Parameter] = table(
    network={
        "num_clients": Parameter(
            30, "K, clients in the network", low=1, high=MOST_COUNTED, aliases=("K",), symbol="K"
        ),
        "clients_per_round": Parameter(
            5, "m, clients that a round selects", low=1, aliases=("m",), symbol="m"
        ),
        "latency": Parameter("two_speed", "the latency law"),
        "min_latency": _positive(0.05, "τ_min in seconds", alias="tau_min", symbol="τ_min", units="s"),
        "availability": Parameter("always", "availability: which clients can be selected in a round"),
        "ending": Parameter("all", "when a round closes, and whose update counts", added=True),
        "late": Parameter(
            "stopped",
            "whether a late client stops before it releases its update, or releases it",
            choices=("stopped", "released"),
            added=True,
            # No client is late if a round waits for all clients, or if slow clients stay at work past the
            # round.
            unread_with=("ending", frozenset(("all", "buffered"))),
        ),
        "failure_probability": Parameter(
            0.0,
            "probability that a selected client fails in a round",
            low=0,
            high=1,
            traced=True,
            zero_is_static=True,
        ),
        "failure_stage": Parameter(
            "before_release",
            "whether a client fails before or after it releases its update; a release spends privacy",
            choices=("before_release", "after_release"),
        ),
    },
    data={
        "dataset": Parameter("digits", "data set"),
        "train_samples": Parameter(0, "number of training samples: the first of the data set; 0: all", low=0),
        "partition": Parameter("iid", "partitioner: which client owns which sample"),
        "held_out_share": Parameter(
            0.0,
            "share of each client's samples on which the client is tested, not trained",
            low=0,
            high=1,
            high_open=True,
            added=True,
        ),
    },
    training={
        "model": Parameter("mlp", "network to train"),
        "task": Parameter("classification", "task: loss, metric and output layer"),
        "optimizer": Parameter("adam", "local optimizer"),
        "learning_rate": _positive(0.01, "local learning rate"),
        "batch_size": Parameter(_TRAINING.batch_size, "minibatch size", low=1),
        "local_epochs": Parameter(_TRAINING.local_epochs, "epochs over a client's data per round", low=1),
        "max_steps": Parameter(
            _TRAINING.max_steps, "largest number of minibatches of a client per round", low=1
        ),
        "federated_algorithm": Parameter(
            "fedavg",
            "how clients train, which update they send, and how the server uses it",
            added=True,
        ),
        "aggregator": Parameter("mean", "aggregator: how the updates of a cohort are combined", added=True),
        "proximal_weight": Parameter(
            0.0, "FedProx: weight of ½‖w - w_t‖²", low=0, traced=True, zero_is_static=True
        ),
        "persist_optimizer": Parameter(
            _TRAINING.persist_optimizer, "keep each client's optimizer state over rounds"
        ),
        "precision": Parameter(
            _TRAINING.precision,
            "precision of factors in matrix products, on every device: float32, TF32 or bfloat16",
            choices=PRECISIONS,
        ),
        "server_optimizer": Parameter("fedavg", "server optimizer: the step for the mean update"),
    },
    privacy={
        "private": Parameter(True, "protect every update by the mechanism; false: mechanism none"),
        "mechanism": Parameter("laplace", "protection of an update, and leakage of a release", added=True),
        "stop_at_epsilon": Parameter(
            0.0,
            "a client is not available if one more release could exceed this leakage; 0: no limit",
            low=0,
            traced=True,
            zero_is_static=True,
            added=True,
        ),
        "budget_decay": _OBJECTIVE["budget_decay"],
        "batch_statistics": Parameter(
            "private",
            "batch norm's statistics: sent with noise, sent without noise (together with their layers'"
            " scales and biases), or never sent",
            choices=BATCH_STATISTICS,
        ),
    },
    reward={name: parameter for name, parameter in _OBJECTIVE.items() if name != "budget_decay"},
)
"""Parameters by name, without the parameters of parts."""


def learns(mode: str) -> bool:
    """Returns whether clients train in a mode; in mode "bandit", they are only selected and timed."""
    return mode == "training"


LEARNING = frozenset(
    {name for name, p in PARAMETERS.items() if p.section in ("data", "training")}
    | {"private", "sensitivity", "clip", "noise_generator", "batch_statistics"}
)
"""Names of the parameters that mode "bandit" does not read."""
