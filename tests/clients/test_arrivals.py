"""Studies in which selected clients fail: what the server learns, and what the result says."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import linen

import pausejax
from pausejax import parts

SMALL = {
    "num_clients": 4,
    "clients_per_round": 2,
    "train_samples": 120,
    "batch_size": 10,
    "max_steps": 2,
    "model": "linear",
    "rounds": 8,
    "eval_every": 1,
}


class Normed(linen.Module):
    outputs: int

    @linen.compact
    def __call__(self, x, training):
        x = x.reshape(x.shape[0], -1)
        return linen.Dense(self.outputs)(linen.BatchNorm(use_running_average=not training, momentum=0.5)(x))


@pytest.fixture(autouse=True)
def _parts(own_parts):
    @parts.server_optimizer
    def drifting() -> optax.GradientTransformation:
        """Moves the model in every round, whatever arrives."""

        def update(gradient, state, params):
            return jax.tree.map(lambda leaf: 0.1 - leaf, gradient), state

        return optax.GradientTransformation(lambda params: (), update)

    @parts.model
    def normed(*, num_outputs: int):
        return Normed(num_outputs)


@pytest.mark.slow
@pytest.mark.parametrize(
    "server",
    ["drifting", *(pytest.param(s, marks=pytest.mark.slow) for s in ("fedavgm", "fedadam", "fedyogi"))],
)
def test_a_round_in_which_nobody_arrives_is_no_step_of_the_server(server):
    found = pausejax.simulate("random", seeds=3, server_optimizer=server, failure_probability=0.6, **SMALL)
    loss = found["test_loss"].values
    empty = (found["failed_count"] == 2).values[:, 1:]
    assert empty.sum() >= 3 and (~empty).sum() >= 3
    np.testing.assert_array_equal(loss[:, 1:] == loss[:, :-1], empty)


@pytest.mark.slow
@pytest.mark.parametrize("mechanism", ["laplace", "gaussian"])
def test_a_round_in_which_nobody_arrives_leaves_the_statistics_of_batch_norm(mechanism):
    """`krum` selects one row, which is noise alone if no update has arrived."""
    options = {**SMALL, "model": "normed", "aggregator": "krum", "mechanism": mechanism}
    loss = pausejax.simulate("random", seeds=2, failure_probability=1.0, **options)["test_loss"].values
    assert (loss == loss[:, :1]).all()
    some = pausejax.simulate("random", seeds=2, failure_probability=0.0, **options)["test_loss"].values
    assert (some != some[:, :1]).any()


@pytest.mark.slow
def test_learning_does_not_depend_on_when_a_client_fails():
    """Statistics of a client that has failed in every round are those that nobody has trained."""
    options = {**SMALL, "model": "normed", "batch_statistics": "local", "private": False}
    before, after = (
        pausejax.simulate("random", seeds=2, failure_probability=0.5, failure_stage=stage, **options)
        for stage in ("before_release", "after_release")
    )
    np.testing.assert_array_equal(before["selected"], after["selected"])
    assert (before["failed_count"] > 0).any()
    for name in ("test_loss", "test_accuracy", "train_loss"):
        np.testing.assert_array_equal(before[name], after[name])


@pytest.mark.slow
def test_a_runs_numbers_do_not_depend_on_whether_its_neighbours_fail():
    """The weights of these cohorts do not sum to 1 exactly: a division by their sum would show."""
    options = {**SMALL, "clients_per_round": 3, "partition": "dirichlet_quantity", "seeds": 2}
    alone, mixed = (
        pausejax.simulate("random", failure_probability=chance, **options) for chance in (0.0, [0.0, 0.5])
    )
    mixed = mixed.isel(run=(mixed["failure_probability"] == 0).values)
    for name in alone.data_vars:
        np.testing.assert_array_equal(mixed[name], alone[name], err_msg=name)
    assert not mixed["failed_count"].any()


@pytest.mark.slow
@pytest.mark.parametrize("stage", ["before_release", "after_release"])
def test_every_ledger_can_be_computed_from_the_releases(stage):
    found = pausejax.simulate(
        ["pause", "random"],
        seeds=3,
        mode="bandit",
        rounds=40,
        num_clients=6,
        clients_per_round=2,
        failure_probability=[0.0, 0.4],
        failure_stage=stage,
    )
    assert (found["counts"].sum("client") == 80).all()
    lost = found["failed_count"].sum("round") if stage == "before_release" else 0
    assert (found["releases"].sum("client") == 80 - lost).all()
    spent = found["privacy_budget"] * (1 - np.exp(-found["budget_decay"] * found["releases"]))
    np.testing.assert_allclose(spent.max("client"), found["max_leakage"].isel(round=-1), rtol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("stage", ["before_release", "after_release"])
def test_a_quantity_sees_what_has_arrived(stage):
    @parts.quantity()
    def sum_of_weights(seen):
        return seen.weights.sum()

    @parts.quantity()
    def mean_loss_of_the_arrived(seen):
        return jnp.nansum(seen.weights * seen.loss)

    @parts.quantity()
    def known_losses(seen):
        return jnp.isfinite(seen.loss).sum()

    @parts.quantity()
    def arrivals(seen):
        return seen.arrived.sum()

    names = ["sum_of_weights", "mean_loss_of_the_arrived", "known_losses", "arrivals"]
    options = {"failure_probability": 0.5, "failure_stage": stage, "quantities": names}
    found = pausejax.simulate("random", seeds=2, **options, **SMALL)
    arrived = 2 - found["failed_count"]
    assert set(np.unique(arrived)) == {0, 1, 2}
    np.testing.assert_array_equal(found["arrivals"], arrived)
    np.testing.assert_array_equal(found["known_losses"], arrived)
    np.testing.assert_allclose(found["sum_of_weights"], arrived > 0, rtol=1e-6)
    expected = found["train_loss"].fillna(0)
    np.testing.assert_allclose(found["mean_loss_of_the_arrived"], expected, rtol=1e-6)
