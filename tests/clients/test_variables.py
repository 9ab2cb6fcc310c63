"""What a study weighs its settings by."""

from pausejax import kinds
from pausejax.clients.outputs import outputs
from pausejax.clients.variables import METRICS

TRAINING = {"rounds": 2, "data": {"dataset": "digits"}, "policy": [{"name": "random"}]}


def test_settings_are_ranked_by_what_is_learned_and_without_training_by_time():
    learned, bandit = (kinds.parse({**TRAINING, **more}) for more in ({}, {"mode": "bandit"}))
    assert METRICS[outputs(learned).best_by].variable == "test_accuracy"
    assert outputs(learned).best_by == outputs(learned).objectives[0]
    assert outputs(bandit).best_by == "mean_latency" != outputs(bandit).objectives[0]
