"""What parts read from files: every part is given its table, and a file lies where its spec says."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import pausejax
from pausejax import kinds, parts
from pausejax.data.host import DataCache
from pausejax.execution.local import LocalExecutor
from pausejax.execution.play import play_in_memory
from pausejax.federated.aggregators import Aggregator
from pausejax.federated.algorithms import Algorithm
from pausejax.policies import Policy, cohort, memoryless
from pausejax.study.plan import make_plan

K, NO_FILE = 4, pausejax.File("")
SMALL = {
    "num_clients": K,
    "clients_per_round": 2,
    "train_samples": 120,
    "batch_size": 10,
    "max_steps": 2,
    "model": "linear",
    "rounds": 3,
    "eval_every": 1,
}


@pytest.fixture(autouse=True)
def _parts(own_parts):
    @parts.policy
    def by_table(*, clients_per_round: int, plan_file: pausejax.File = NO_FILE) -> Policy:
        """The clients of the largest numbers in a round's row."""

        def select(key, state, view):
            row = plan_file[(view.round - 1) % plan_file.shape[0]]
            return cohort(jnp.argsort(-row)[:clients_per_round].astype(jnp.int32), state.data_share)

        return memoryless(select)

    @parts.optimizer
    def scaled(*, step_file: pausejax.File = NO_FILE) -> optax.GradientTransformation:
        """Plain steps of a size that is the sum of a table."""
        return optax.scale(step_file.sum())

    @parts.server_optimizer
    def damped(*, damping_file: pausejax.File = NO_FILE) -> optax.GradientTransformation:
        """The mean update times the sum of a table."""
        return optax.scale(-damping_file.sum())

    @parts.model
    def from_file(*, num_outputs: int, weight_file: pausejax.File = NO_FILE):
        """A linear network that starts from a file."""
        weights = np.load(weight_file).astype(np.float32)

        def apply(weights, inputs):
            return inputs.reshape(inputs.shape[0], -1) @ weights

        return lambda key: jnp.asarray(weights), apply


def write(folder, name, table):
    np.save(folder / name, np.asarray(table, np.float32))
    return str(folder / name)


@pytest.mark.slow
def test_a_policy_is_given_its_table(tmp_path):
    table = np.random.default_rng(0).random((5, K))
    file = write(tmp_path, "plan.npy", table)
    found = pausejax.simulate(
        {"name": "by_table", "plan_file": file}, mode="bandit", rounds=7, num_clients=K, clients_per_round=2
    )
    expected = np.sort(np.argsort(-table, axis=1)[:, :2], axis=1)[np.arange(7) % 5]
    np.testing.assert_array_equal(found["selected"].values[0], expected)


@pytest.mark.slow
def test_algorithms_and_aggregators_are_given_their_tables(tmp_path, own_parts):
    """All of them halve the mean update: by the upload, by a state of the server, or by the aggregation."""

    @parts.algorithm
    def halved_upload(*, upload_file: pausejax.File = NO_FILE) -> Algorithm:
        def upload(local):
            moved = jax.tree.map(lambda new, old: upload_file[0, 1] * (new - old), local.params, local.start)
            return moved, local.client

        return Algorithm(upload=upload)

    @parts.algorithm
    def halved_mean(*, mean_file: pausejax.File = NO_FILE) -> Algorithm:
        def combine(mean, params, server, arrived):
            return jax.tree.map(lambda update: server[0, 1] * update, mean), server

        return Algorithm(init=lambda params: (mean_file, ()), combine=combine)

    @parts.aggregator
    def halved_sum(*, sum_file: pausejax.File = NO_FILE) -> Aggregator:
        half = sum_file[0, 1]
        return Aggregator(lambda updates, weights: half * (weights @ updates))

    table = write(tmp_path, "half.npy", [[7.0, 0.5, 7.0]])
    options = {**SMALL, "seeds": 2, "private": False}
    ways = [
        {"server_optimizer": "damped", "damping_file": write(tmp_path, "damping.npy", [[0.5]])},
        {"federated_algorithm": "halved_upload", "upload_file": table},
        {"federated_algorithm": "halved_mean", "mean_file": table},
        {"aggregator": "halved_sum", "sum_file": table},
    ]
    found, *others = (pausejax.simulate("random", **options, **way)["test_loss"].values for way in ways)
    assert np.ptp(found[0]) > 0
    for other in others:
        np.testing.assert_allclose(other, found, rtol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("part", "key", "usual"),
    [("server_optimizer", "damping_file", "fedavg"), ("optimizer", "step_file", "sgd")],
)
def test_an_optimizer_is_given_its_table(tmp_path, part, key, usual):
    """Of any width; tables that sum to 0 keep the model, tables that sum to 1 change nothing."""
    options = {**SMALL, "optimizer": "sgd", "seeds": 2, "private": False}
    name = {"optimizer": "scaled", "server_optimizer": "damped"}[part]
    losses = [
        pausejax.simulate("random", **{**options, part: name, key: write(tmp_path, f"{total}.npy", table)})
        for total, table in enumerate(([[1.0, -1.0, 0.0]], [[0.25, 0.25], [0.25, 0.25]]))
    ]
    still, stepped = (found["test_loss"].values for found in losses)
    assert (still == still[:, :1]).all()
    plain = pausejax.simulate("random", **{**options, part: usual})
    np.testing.assert_array_equal(stepped, plain["test_loss"])


@pytest.mark.slow
def test_a_part_is_given_the_table_of_another_that_it_asks_for(tmp_path):
    @parts.policy
    def clairvoyant(*, clients_per_round: int, trace_file) -> Policy:
        """The fastest of the round, off the trace's mean."""

        def select(key, state, view):
            fastest = jnp.argsort(trace_file.mean(axis=0))[:clients_per_round]
            return cohort(fastest.astype(jnp.int32), state.data_share)

        return memoryless(select)

    table = np.random.default_rng(1).uniform(0.1, 1.0, (9, K))
    found = pausejax.simulate(
        "clairvoyant",
        mode="bandit",
        rounds=2,
        num_clients=K,
        clients_per_round=2,
        latency="trace",
        trace_file=write(tmp_path, "t.npy", table),
    )
    expected = np.sort(np.argsort(table.mean(axis=0))[:2])
    np.testing.assert_array_equal(found["selected"].values[0], [expected] * 2)


@pytest.mark.parametrize(
    ("policy", "options", "message"),
    [
        (
            "by_table",
            {"mode": "bandit"},
            r'^selection\.plan_file = "": must be the path of a file, which .*by_table',
        ),
        ("random", {"optimizer": "scaled"}, r'^simulate: training\.step_file = "": needed with'),
    ],
)
def test_a_file_that_is_not_given_is_asked_for(policy, options, message):
    with pytest.raises(pausejax.SpecError, match=message):
        pausejax.simulate(policy, **{**SMALL, **options})


def test_a_worker_refuses_a_models_file_that_has_changed(tmp_path):
    """It reads the file itself, perhaps long after the driver."""
    document = {**SMALL, "policy": [{"name": "random"}], "model": "from_file", "rounds": 1}
    document["weight_file"] = write(tmp_path, "w.npy", np.ones((64, 10)))
    plan = make_plan(kinds.parse(document, flat=True))
    write(tmp_path, "w.npy", np.zeros((64, 10)))
    with pytest.raises(pausejax.SpecError, match=r"w\.npy: changed after the command had read it"):
        LocalExecutor(DataCache()).program(plan.study, plan.groups[0])


def test_the_default_file_of_a_part_that_a_study_does_not_use_is_no_mistake(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write(tmp_path, "usual.npy", [[1.0]])

    @parts.optimizer
    def usually_scaled(*, usual_file: pausejax.File = pausejax.File("usual.npy")):  # noqa: B008
        return optax.scale(usual_file.sum())

    for options in ({}, {"optimizer": "usually_scaled"}):
        assert kinds.parse({**SMALL, "policy": [{"name": "random"}], **options}, flat=True)
    write(tmp_path, "other.npy", [[2.0]])
    with pytest.raises(
        pausejax.SpecError, match=r"usual_file = .*other\.npy.*: read only with .*Leave it out"
    ):
        kinds.parse({**SMALL, "policy": [{"name": "random"}], "usual_file": "other.npy"}, flat=True)


def test_an_optimizers_table_that_is_none_is_named_once(tmp_path):
    options = {**SMALL, "optimizer": "scaled", "step_file": write(tmp_path, "s.npy", [[np.nan]])}
    with pytest.raises(pausejax.SpecError, match=r"^training\.step_file = .*: must hold finite numbers"):
        pausejax.simulate("random", **options)


def test_a_policys_table_has_a_column_for_each_client(tmp_path):
    policy = {"name": "by_table", "plan_file": write(tmp_path, "p.npy", np.ones((2, K + 1)))}
    with pytest.raises(pausejax.SpecError, match=rf"^selection\.plan_file = .* must have {K} columns"):
        pausejax.simulate(policy, mode="bandit", num_clients=K, clients_per_round=2)


@pytest.mark.slow
def test_a_models_file_lies_beside_the_spec_and_its_content_counts(tmp_path, monkeypatch):
    """In one process too, where a model that was made of another content is still known."""
    folder, elsewhere = tmp_path / "study", tmp_path / "elsewhere"
    for place in (folder, elsewhere):
        place.mkdir()
    monkeypatch.chdir(elsewhere)
    document = {**SMALL, "policy": "random", "model": "from_file", "weight_file": "w.npy", "rounds": 1}
    document |= {"learning_rate": 1e-12, "optimizer": "sgd", "private": False}
    document["policy"] = [{"name": "random"}]

    def loss_from(weights):
        write(folder, "w.npy", weights)
        plan = make_plan(kinds.parse(document, flat=True, folder=folder))
        return float(play_in_memory(plan, LocalExecutor(DataCache()))["test_loss"].values[0, -1])

    flat, steep = (loss_from(np.random.default_rng(0).normal(size=(64, 10)) * size) for size in (0.0, 1.0))
    assert flat == pytest.approx(np.log(10), rel=1e-5) and steep > 1.5 * flat
