"""Small studies, one of each mode, that the attacks start from."""

BANDIT = {
    "mode": "bandit",
    "rounds": 40,
    "seeds": 2,
    "network": {"num_clients": 6, "clients_per_round": 2},
    "reward": {"gamma": [1.0, 5.0]},
    "policy": [
        {"name": "pause"},
        {"name": "sa_pause", "annealing_steps": 8, "label": "sa"},
        {"name": "random"},
    ],
}
TRAINING = {
    "rounds": 30,
    "eval_every": 10,
    "seeds": 2,
    "network": {"num_clients": 4, "clients_per_round": 2},
    "data": {"train_samples": 80, "partition": "dirichlet_label", "concentration": 5.0},
    "training": {"model": "linear", "max_steps": 1, "batch_size": 4},
    "policy": [{"name": "pause"}, {"name": "fedavg", "private": False}],
}
STOPPING = {
    **TRAINING,
    "stop_at_latency": 6.0,
    "network": {
        "num_clients": 4,
        "clients_per_round": 2,
        "fast_latency": [0.06, 0.1, 0.5, 0.8],
        "slow_latency": 0.9,
    },
    "training": {**TRAINING["training"], "persist_optimizer": True},
    "policy": [{"name": "fastest"}],
}
ENSEMBLE = {
    "mode": "ensemble",
    "rounds": 200,
    "eval_every": 20,
    "seeds": 2,
    "network": {"num_clients": 20},
    "data": {"dataset": "diabetes"},
    "policy": [{"name": "efl_fg"}, {"name": "exp3"}],
}
SAMPLED = {
    "mode": "bandit",
    "rounds": 10,
    "seeds": [3, 7],
    "zip": [["num_clients", "clients_per_round"]],
    "network": {"num_clients": [5, 8], "clients_per_round": [2, 3], "latency": "lognormal"},
    "reward": {"alpha": {"log_uniform": [1.0, 100.0]}, "gamma": {"uniform": [0.0, 10.0]}},
    "sampling": {"n": 4, "method": "sobol"},
    "policy": [{"name": "pause"}],
}
ALL = {
    "bandit": BANDIT,
    "training": TRAINING,
    "stopping": STOPPING,
    "ensemble": ENSEMBLE,
    "sampled": SAMPLED,
}
