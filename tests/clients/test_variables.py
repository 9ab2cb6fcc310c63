"""What a study weighs its settings by."""

from pausejax import kinds
from pausejax.clients.variables import METRICS, objectives, ranking

TRAINING = {"rounds": 2, "data": {"dataset": "digits"}, "policy": [{"name": "random"}]}


def test_settings_are_ranked_by_what_is_learned_and_without_training_by_time():
    learned, bandit = (kinds.parse({**TRAINING, **more}) for more in ({}, {"mode": "bandit"}))
    assert METRICS[ranking(learned)].variable == "test_accuracy"
    assert ranking(learned) == objectives(learned)[0]
    assert ranking(bandit) == "mean_latency" != objectives(bandit)[0]
