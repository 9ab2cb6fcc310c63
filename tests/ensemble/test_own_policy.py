"""An ensemble policy from outside the package plays with its own parameters, those of its runs."""

import jax.numpy as jnp
import numpy as np
import pytest

import pausejax
from pausejax import parts
from pausejax.ensemble.baselines import exp3, fixed

STUDY = {"mode": "ensemble", "rounds": 60, "eval_every": 30, "num_clients": 5}


pytestmark = pytest.mark.usefixtures("own_parts")


@pytest.mark.slow
def test_what_is_traced_and_what_shapes_the_policy_reach_it():
    @parts.ensemble_policy
    def heated(*, num_models, exploration_rate, heat: float = 0.5):
        """EXP3 whose rate has another name."""
        return exp3(num_models=num_models, learning_rate=heat, exploration_rate=exploration_rate)

    @parts.ensemble_policy
    def single(*, num_models, num_runs, which: int = 0):
        """One model, always."""
        chosen = (jnp.arange(num_models) == which).astype(jnp.float32)
        return fixed(jnp.broadcast_to(chosen[:, None], (num_models, num_runs)))

    rates = [0.01, 2.0]
    ours = pausejax.simulate({"name": "heated", "heat": rates, "exploration_rate": 0.1}, **STUDY)
    theirs = pausejax.simulate({"name": "exp3", "learning_rate": rates, "exploration_rate": 0.1}, **STUDY)
    np.testing.assert_array_equal(ours["sent_counts"], theirs["sent_counts"])
    assert (ours["sent_counts"].values[0] != ours["sent_counts"].values[1]).any()
    chosen = pausejax.simulate({"name": "single", "which": [1, 4]}, **STUDY)
    assert chosen["sent_counts"].values.argmax(axis=1).tolist() == [1, 4]


def test_a_file_is_refused(tmp_path):
    no_file = pausejax.File("")

    @parts.ensemble_policy
    def tabled(*, num_models, num_runs, table_file: pausejax.File = no_file):
        return fixed(jnp.ones((num_models, num_runs)) / num_models)

    np.save(tmp_path / "t.npy", np.ones((2, 2)))
    policy = {"name": "tabled", "table_file": str(tmp_path / "t.npy")}
    with pytest.raises(
        pausejax.SpecError, match=r"^weights\.table_file = .*: a policy of ensembles can't have"
    ):
        pausejax.simulate(policy, **STUDY)
