"""An ensemble policy from outside the package plays with its own parameters, those of its runs."""

import threading

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import pausejax
from pausejax import analysis, parts
from pausejax.ensemble import Choice, EnsemblePolicy, Runs, fit_pool, load_regression, make_pool, simulate
from pausejax.ensemble.baselines import exp3, fixed
from pausejax.ensemble.policies import Hyper, make_policy
from pausejax.ensemble.policy import Feedback, certain_loss

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


def test_a_policy_without_a_digest_is_refused():
    """JAX would keep its trace with old constants."""
    lock = threading.Lock()

    @parts.ensemble_policy
    def locked(*, num_models, num_runs):
        with lock:
            return fixed(jnp.ones((num_models, num_runs)) / num_models)

    pool = make_pool(np.eye(60, 2), np.linspace(0, 1, 60), [1, 1])
    with pytest.raises(parts.PartError, match=r"ensemble_policy locked: uses locked\.lock, a lock"):
        simulate(pool, "locked", Runs([0], 0.1, 0.1, 3.0, 50), rounds=6, num_clients=5)


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


def test_an_own_parameter_is_an_array_of_its_default():
    @parts.ensemble_policy
    def tilted(*, num_models, bonus: float = 0.25):
        return fixed(jnp.stack([bonus, 1 - bonus]))

    pool = make_pool(np.tile([1.0, 0.0], (8, 1)), np.zeros(8), np.array([1, 1]))
    runs = Runs(seed=np.arange(2), learning_rate=0.1, exploration_rate=0.1, budget=2.0, uplink=4)
    found = simulate(pool, "tilted", runs, rounds=4, num_clients=2)
    np.testing.assert_allclose(found["mse"], np.full((2, 4), 0.25**2), rtol=1e-6)


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


def test_weights_that_are_no_numbers_have_no_figures():
    """Not those of the last round in which they were numbers, which would win."""

    @parts.ensemble_policy
    def lost(*, num_models, num_runs):
        shape = num_models, num_runs

        def select(key, seen):
            return Choice(jnp.ones(shape, bool), jnp.where(seen[None] < 30, jnp.zeros(shape), jnp.nan))

        return EnsemblePolicy(lambda: jnp.zeros(num_runs), select, lambda seen, *_: seen + 1, certain_loss)

    result = pausejax.simulate(["lost", "all_experts"], **STUDY)
    figures = analysis.finals(result, ["mse", "regret", "realized_regret", "cost"]).to_dataframe()
    is_lost = np.isnan(result["mse"].values[:, -1])
    assert 0 < is_lost.sum() < len(is_lost) and np.isfinite(result["mse"].values[:, 0]).all()
    for name in ("mse", "regret", "realized_regret"):
        np.testing.assert_array_equal(np.isnan(figures[name]), is_lost)
    assert analysis.best(result, "regret")["label"].item() == "all_experts"
    left_out = pausejax.summary(result).query("metric == 'regret'").left_out.tolist()
    assert sorted(left_out) == [0, is_lost.sum()]


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


K, R, N = 4, 3, 2
SENT, MIXING = jnp.ones((K, R), bool), jnp.ones((K, R))


def policy_of(**functions):
    whole = {
        "init": lambda: (jnp.zeros((K, R)), jnp.zeros(R, jnp.int32)),
        "select": lambda key, state: Choice(SENT, MIXING),
        "update": lambda state, choice, feedback: state,
        "expected_loss": certain_loss,
        "regret_bound": lambda choice, round, num_clients: jnp.zeros((K, R)),
    }
    return EnsemblePolicy(**(whole | functions))


def trace(made):
    """Traces every function of a policy once, with K models, R runs and N clients."""

    def mine():
        return made

    hyper = Hyper(*[np.ones(R, np.float32)] * 5)
    part = parts.read("ensemble_policy", mine)
    policy = make_policy(part, parameters=jnp.ones(K, jnp.int32), stream_loss=jnp.ones(K), hyper=hyper)

    def a_round(key):
        state = policy.init()
        choice = policy.select(jax.random.split(key, R), state)
        per_run = jnp.zeros(R)
        feedback = Feedback(MIXING, per_run, MIXING, per_run.astype(int))
        loss = policy.expected_loss(choice, jnp.zeros((K, N, R)), jnp.zeros((N, R)))
        bound = policy.regret_bound(choice, jnp.int32(1), jnp.ones(R, jnp.int32))
        return policy.update(state, choice, feedback), loss, bound

    jax.eval_shape(a_round, jax.random.key(0))


@pytest.mark.parametrize(
    ("function", "returned", "message"),
    [
        ("init", MIXING[:, :1], r"init: state is float32 \[4, 1\]; the last axis must be .*, of length 3"),
        ("init", {"sum": 0.0}, r"init: state\['sum'\] is float32 \[\]; the last axis must be"),
        ("select", (SENT, MIXING), "select must return a Choice, not tuple"),
        ("select", Choice(MIXING, MIXING), r"select: sent is float32 \[4, 3\]; must be bool \[4, 3\]"),
        ("select", Choice(SENT, MIXING[0]), r"select: mixing is float32 \[3\]; must be float32 \[4, 3\]"),
        ("select", Choice(SENT, None), "select: .*None"),
        (
            "update",
            (MIXING, MIXING[0]),
            r"update: state\[1\] must stay int32 \[3\], not become float32",
        ),
        ("update", MIXING, "update: the new state must have the same pytree structure"),
        ("expected_loss", MIXING[0], r"expected_loss returns float32 \[3\]; must be float32 \[2, 3\]"),
        ("expected_loss", 0.0, r"expected_loss returns float32 \[\]; must be float32 \[2, 3\]"),
        ("regret_bound", MIXING[0], r"regret_bound returns float32 \[3\]; must be float32 \[4, 3\]"),
    ],
)
def test_what_a_policy_returns_is_checked_before_compilation(function, returned, message):
    with pytest.raises(parts.PartError, match=f"^{__file__}: ensemble_policy mine: {message}") as raised:
        trace(policy_of(**{function: lambda *_: returned}))
    assert "\n" not in str(raised.value)


def test_an_error_in_a_policy_names_the_policy():
    trace(policy_of())
    with pytest.raises(parts.PartError, match=r"ensemble_policy mine: update: ZeroDivisionError: .* \(line"):
        trace(policy_of(update=lambda *_: 1 // 0))
    with pytest.raises(parts.PartError, match=r"mine: min_sent must be an integer >= 0, not 1\.5"):
        trace(policy_of(min_sent=1.5))
    with pytest.raises(parts.PartError, match=r"mine: must return a pausejax\.ensemble\.EnsemblePolicy, not"):
        trace(3)
