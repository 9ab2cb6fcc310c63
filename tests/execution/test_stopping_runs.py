"""Runs that stop at a simulated time, with state by client: what is left goes on with its own."""

import numpy as np
import pytest

import pausejax

NETWORK = {
    "num_clients": 6,
    "clients_per_round": 2,
    "fast_latency": [0.06, 0.1, 1.0, 1.4],
    "slow_latency": 1.5,
}
TRAINING = {
    "model": "linear",
    "train_samples": 240,
    "max_steps": 2,
    "persist_optimizer": True,
    "eval_every": 10,
}


@pytest.mark.slow
def test_clients_keep_their_own_optimizers_when_a_chunk_shrinks():
    """Half the runs stop early and are taken out of the chunk; the others must not meet their moments."""
    whole = pausejax.simulate("fastest", rounds=150, seeds=2, **NETWORK, **TRAINING)
    short = pausejax.simulate("fastest", rounds=150, seeds=2, stop_at_latency=12.0, **NETWORK, **TRAINING)
    last = (whole["elapsed"] < 12.0).sum("round").values + 1
    assert last.min() < 40 < 100 < last.max(), "no chunk shrinks in the middle of a longer run"
    for run, rounds in enumerate(np.minimum(last, 150)):
        for name in ("selected", "train_loss", "elapsed"):
            np.testing.assert_allclose(
                short[name][run, :rounds], whole[name][run, :rounds], rtol=1e-5, atol=1e-6
            )
        evaluated = whole["eval_round"].values <= rounds
        np.testing.assert_allclose(
            short["test_accuracy"][run].values[evaluated],
            whole["test_accuracy"][run].values[evaluated],
            atol=1e-6,
        )
