"""An ensemble policy from outside the package plays with its own parameters, those of its runs."""

import jax.numpy as jnp
import numpy as np
import pytest

import pausejax
from pausejax import parts
from pausejax.ensemble import Choice, EnsemblePolicy, Runs, fit_pool, load_regression, simulate
from pausejax.ensemble.baselines import exp3, fixed
from pausejax.ensemble.policy import certain_loss

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


@pytest.mark.slow
def test_a_changed_constant_is_read():
    """The part stays the same object, so JAX has a trace of it with the old constant."""
    which = [1]

    @parts.ensemble_policy
    def single(*, num_models, num_runs):
        """One model, always."""
        chosen = (jnp.arange(num_models) == which[0]).astype(jnp.float32)
        return fixed(jnp.broadcast_to(chosen[:, None], (num_models, num_runs)))

    pool, runs = fit_pool(load_regression("diabetes")), Runs([0], 0.1, 0.1, 3.0, 50)
    for place in (1, 4):
        which[0] = place
        studied = pausejax.simulate("single", **STUDY)["sent_counts"].values
        direct = simulate(pool, "single", runs, rounds=60, num_clients=5, record_every=30)["sent_counts"]
        assert studied.argmax(axis=1).tolist() == direct.argmax(axis=1).tolist() == [place]


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


def always(sent, mixing):
    """Returns a policy that makes the same choice in every round."""

    def select(key, state):
        return Choice(sent, mixing)

    return EnsemblePolicy(lambda: (), select, lambda state, *_: state, certain_loss)


@pytest.mark.slow
def test_a_policy_that_sends_nothing_is_simulated_with_all_its_reports():
    @parts.ensemble_policy
    def silent(*, num_models, num_runs):
        """Sends no model, so that every prediction is 0."""
        return always(jnp.zeros((num_models, num_runs), bool), jnp.ones((num_models, num_runs)))

    asked = {**STUDY, "num_clients": 100}
    alone = pausejax.simulate("silent", uplink=24, **asked)
    beside = pausejax.simulate("silent", uplink=[24, 100], **asked)
    assert alone["reports"].values[0].tolist() == [24 * 30, 24 * 60]
    assert beside["reports"].values[1].tolist() == [100 * 30, 100 * 60]
    targets = np.asarray(fit_pool(load_regression("diabetes")).targets)
    assert (alone["mse"].values <= np.square(targets).max()).all()
    # One round of all clients visits the stream in order; many rounds visit every sample about equally often.
    np.testing.assert_allclose(beside["mse"].values[1, -1], np.square(targets).mean(), rtol=0.05)
    for name in ("mse", "best_expert_mse", "regret", "realized_regret", "cost"):
        np.testing.assert_allclose(alone[name].values[0], beside[name].values[0], rtol=1e-5)


@pytest.mark.slow
def test_weights_of_models_that_are_not_sent_count_as_0():
    @parts.ensemble_policy
    def mixed(*, num_models, num_runs, cheats: bool = False):
        """Sends model 0 and mixes it alone, or mixes all models."""
        first = jnp.broadcast_to((jnp.arange(num_models) == 0)[:, None], (num_models, num_runs))
        weights = jnp.full((num_models, num_runs), 1 / num_models)
        return always(first, weights if cheats else jnp.where(first, weights, 0.0))

    result = pausejax.simulate({"name": "mixed", "cheats": [False, True]}, **STUDY)
    for name in ("mse", "regret", "realized_regret", "cost"):
        np.testing.assert_allclose(*result[name].values, rtol=1e-6)
