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
            "rounds": Parameter(200, "number of rounds of each run", low=1, high=MOST_COUNTED),
            "eval_every": Parameter(10, "number of rounds between two evaluations", low=1),
            "mode": Parameter("training", "kind of study", choices=("training", "bandit", "ensemble")),
            "name": Parameter("", "title of the study"),
            "selection_gap": Parameter(False, "record how far the value of (14) is below its maximum"),
            "expected_regret": Parameter(
                False, "record the regret against the cohort of largest expected reward; small networks only"
            ),
            "client_metrics": Parameter(
                False, "test every client on its held-out samples after the last round"
            ),
            "keep_models": Parameter(False, "store the final model of every run in the result"),
            "stop_at_latency": Parameter(
                0.0, "simulated time in seconds at which a run ends; 0: no limit", low=0, units="s"
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
            30, "K, number of clients in the network", low=1, high=MOST_COUNTED, aliases=("K",), symbol="K"
        ),
        "clients_per_round": Parameter(
            5, "m, number of clients selected in a round", low=1, aliases=("m",), symbol="m"
        ),
        "latency": Parameter("two_speed", "law of the clients' latencies"),
        "min_latency": _positive(
            0.05, "τ_min, smallest possible latency, seconds", alias="tau_min", symbol="τ_min", units="s"
        ),
        "availability": Parameter("always", "rule that says which clients can be selected in a round"),
        "ending": Parameter("all", "rule that closes a round and says which updates count", added=True),
        "late": Parameter(
            "stopped",
            "whether a late client stops without releasing its update, or still releases the update",
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
            "whether a failing client fails before or after it releases its update; a release spends privacy",
            choices=("before_release", "after_release"),
        ),
    },
    data={
        "dataset": Parameter("digits", "data set"),
        "train_samples": Parameter(
            0, "number of training samples, from the start of the data set; 0: all", low=0
        ),
        "partition": Parameter("iid", "partition of the training samples among the clients"),
        "held_out_share": Parameter(
            0.0,
            "share of each client's samples that are held out from training to test the client",
            low=0,
            high=1,
            high_open=True,
            added=True,
        ),
    },
    training={
        "model": Parameter("mlp", "neural network that the clients train"),
        "task": Parameter("classification", "task, which sets the loss, the metric and the output layer"),
        "optimizer": Parameter("adam", "optimizer of the clients' local training"),
        "learning_rate": _positive(0.01, "learning rate of the clients' local training"),
        "batch_size": Parameter(_TRAINING.batch_size, "number of samples in a minibatch", low=1),
        "local_epochs": Parameter(
            _TRAINING.local_epochs, "number of epochs over a client's data in a round", low=1
        ),
        "max_steps": Parameter(
            _TRAINING.max_steps, "largest number of minibatches of a client in a round", low=1
        ),
        "federated_algorithm": Parameter(
            "fedavg",
            "algorithm that says how clients train, what they send, and how the server uses it",
            added=True,
        ),
        "aggregator": Parameter("mean", "rule that combines the updates of a cohort", added=True),
        "proximal_weight": Parameter(
            0.0, "FedProx: weight of the penalty ½‖w - w_t‖²", low=0, traced=True, zero_is_static=True
        ),
        "persist_optimizer": Parameter(
            _TRAINING.persist_optimizer, "keep each client's optimizer state from round to round"
        ),
        "precision": Parameter(
            _TRAINING.precision,
            "precision of the factors in matrix products: float32, TF32 or bfloat16",
            choices=PRECISIONS,
        ),
        "server_optimizer": Parameter(
            "fedavg", "optimizer of the server, which applies the combined update to the model"
        ),
    },
    privacy={
        "private": Parameter(True, "protect every update by the mechanism; false means mechanism none"),
        "mechanism": Parameter(
            "laplace", "mechanism that protects an update and sets the leakage of its release", added=True
        ),
        "stop_at_epsilon": Parameter(
            0.0,
            "leakage limit: a client is unavailable if one more release could exceed it; 0: no limit",
            low=0,
            traced=True,
            zero_is_static=True,
            added=True,
        ),
        "budget_decay": _OBJECTIVE["budget_decay"],
        "batch_statistics": Parameter(
            "private",
            "statistics of batch norm: private: sent with noise; clear: sent without noise; clear_layers:"
            " clear, like the layers' scales and biases; local: never sent",
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
