"""Clients are tested on samples of their own that nobody trains on, with the models that they would use."""

import jax
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import pausejax
from pausejax import analysis, data, parts
from pausejax.analysis.metrics import REDUCTIONS
from pausejax.clients.simulation import ClientSimulation
from pausejax.data.held_out import hold_out, rows
from pausejax.data.host import DataCache
from pausejax.data.partition import Partition
from pausejax.execution.local import LocalExecutor
from pausejax.execution.play import play
from pausejax.kinds import parse
from pausejax.results.folder import Folder
from pausejax.results.stores import FolderStore
from pausejax.searches.options import SearchOptions, with_horizon
from pausejax.study.plan import make_plan
from pausejax.study.spec import SpecError

from ..alike import assert_alike

K, SAMPLES, SHARE = 6, 260, 0.25
SPEC = {
    "rounds": 4,
    "eval_every": 2,
    "seeds": [2, 7],
    "client_metrics": True,
    "keep_models": True,
    "network": {"num_clients": K, "clients_per_round": 2},
    "data": {"train_samples": SAMPLES, "partition": "dirichlet_quantity", "held_out_share": SHARE},
    "training": {
        "model": "mlp",
        "federated_algorithm": ["fedavg", "fedper"],
        "optimizer": "sgd",
        "learning_rate": 0.3,
    },
    "privacy": {"private": False},
    "policy": [{"name": "random"}, {"name": "fastest"}],
}


@st.composite
def partitions(draw):
    sizes = draw(st.lists(st.integers(1, 30), min_size=1, max_size=8))
    order = np.random.default_rng(draw(st.integers(0, 99))).permutation(sum(sizes))
    return Partition(order.astype(np.int32), np.array(sizes, np.int32))


def test_quantities_may_not_have_the_names_of_client_metrics(own_parts):
    @pausejax.quantity(units="1", maximize=True)
    def worst_client_accuracy(seen):
        return 1.0

    asked = {"policy": [{"name": "random"}], "quantities": ["worst_client_accuracy"]}
    assert "worst_client_accuracy" in parse(asked).outputs.metrics
    with pytest.raises(ValueError, match="quantity worst_client_accuracy: this name is taken"):
        parse({**asked, "client_metrics": True}).outputs  # noqa: B018


@pytest.mark.slow
@given(partitions(), st.floats(0, 0.999), st.integers(0, 2**32 - 1))
def test_a_share_of_each_client_is_kept_out_and_the_rest_is_trained_on(whole, share, seed):
    cut = hold_out(whole, share, seed)
    expected = [min(round(share * size), size - 1) for size in whole.sizes.tolist()]
    assert np.broadcast_to(cut.held_out, cut.sizes.shape).tolist() == expected and cut.sizes.min() >= 1
    held, first = rows(cut).tolist(), 0
    for client, number in enumerate(expected):
        before, after = whole.offsets[client], whole.offsets[client] + whole.sizes[client]
        owned = set(whole.order[before:after].tolist())
        trained = cut.order[cut.offsets[client] :][: cut.sizes[client]].tolist()
        own = held[first : first + number]
        assert len(trained) + len(own) == len(owned) and set(trained) | set(own) == owned
        first += number
    assert first == len(held)
    np.testing.assert_allclose(cut.data_share, cut.sizes / cut.sizes.sum(), rtol=1e-6)
    again = hold_out(whole, share, seed)
    np.testing.assert_array_equal(again.order, cut.order)


def test_what_is_kept_out_is_drawn_at_random_by_the_seed():
    whole = Partition(np.arange(4000, dtype=np.int32), np.array([1000, 3000], np.int32))
    one, other = (set(rows(hold_out(whole, 0.25, seed)).tolist()) for seed in (0, 1))
    assert 150 < len(one & other) < 350 and len(one) == 1000  # 250 are expected
    assert 30 < sum(row < 250 for row in one) < 95  # and of these 62.5


def test_labels_of_a_client_count_all_that_it_owns():
    whole = data.partition.split("shards", np.arange(60) % 3, 4, 0, batch_size=5)
    labels = np.arange(60) % 3
    cut = hold_out(whole, 0.4, 0)
    np.testing.assert_array_equal(cut.label_counts(labels), whole.label_counts(labels))


def flat(document):
    """The parameters of a spec without their sections."""
    tables = (document[name] for name in ("network", "data", "training", "privacy"))
    return {name: value for table in tables for name, value in table.items()}


@pytest.fixture(scope="module")
def result():
    keys = {key: SPEC[key] for key in ("rounds", "eval_every", "seeds", "client_metrics", "keep_models")}
    return pausejax.simulate("random", **keys, **flat(SPEC))


def partition_of(seed):
    labels = data.load("digits").train_targets[:SAMPLES]
    whole = data.partition.split("dirichlet_quantity", labels, K, seed, batch_size=20)
    return hold_out(whole, SHARE, seed)


@pytest.mark.slow
def test_every_client_is_tested_with_its_own_model_on_its_own_samples(result):
    digits = data.load("digits")
    expected, kinds = np.zeros((result.sizes["run"], K)), []
    for run, model in enumerate(pausejax.models(result)):
        cut = partition_of(int(result["seed"].values[run]))
        ends = np.cumsum(cut.held_out)
        kinds.append(model.clients is None)
        for client in range(K):
            own = rows(cut)[ends[client] - cut.held_out[client] : ends[client]]
            weights = model.weights
            if model.clients:
                weights = jax.tree.map(lambda leaf, k=client: leaf[k], model.clients)
            logits = np.asarray(model.apply(weights, digits.train_inputs[own]))
            expected[run, client] = (logits.argmax(axis=1) == digits.train_targets[own]).mean()
    np.testing.assert_allclose(result["client_accuracy"].values, expected, atol=1e-6)
    assert sorted(kinds) == [False] * 2 + [True] * 2 and expected.std() > 0.05


def test_training_has_the_rest_alone_under_every_policy():
    plan = make_plan(parse(SPEC))
    for group in plan.groups:
        made = ClientSimulation(plan.study, group, DataCache())
        for place, seed in enumerate(SPEC["seeds"]):
            cut = partition_of(seed)
            of_seed = [np.asarray(leaf)[place] for leaf in made.first_world.data[4:]]
            order, offset, size = of_seed
            trained = np.concatenate([order[o : o + s] for o, s in zip(offset, size, strict=True)])
            assert not set(trained.tolist()) & set(rows(cut).tolist())
            assert len(trained) + len(rows(cut)) == SAMPLES
            np.testing.assert_allclose(made._data_share[place], size / size.sum(), rtol=1e-6)


@pytest.mark.slow
def test_metrics_of_a_run_are_those_of_its_clients(result):
    figures, values = analysis.finals(result), result["client_accuracy"].values.astype(np.float64)
    np.testing.assert_allclose(figures["worst_client_accuracy"], values.min(axis=1))  # a tenth of 6 is one
    np.testing.assert_allclose(figures["client_accuracy_spread"], values.std(axis=1))
    best = analysis.best(figures, "worst_client_accuracy")
    means = figures["worst_client_accuracy"].values.reshape(2, 2).mean(axis=1)
    assert float(best["mean"]) == pytest.approx(means.max())
    assert {"worst_client_accuracy", "client_accuracy_spread"} <= set(pausejax.summary(result)["metric"])
    assert analysis.pareto(figures, ["worst_client_accuracy", "client_accuracy_spread"]).sizes["setting"]


@given(
    st.lists(
        st.lists(st.one_of(st.floats(-5, 5, width=32), st.just(np.nan)), min_size=23, max_size=23),
        min_size=1,
        max_size=4,
    )
)
def test_reductions_leave_clients_without_a_value_out(table):
    values = np.array(table, np.float32)
    for row, low, high, spread in zip(
        values,
        *(REDUCTIONS[name](values) for name in ("lowest_tenth", "highest_tenth", "spread")),
        strict=True,
    ):
        there = np.sort(row[~np.isnan(row)].astype(np.float64))
        if not there.size:
            assert np.isnan([low, high, spread]).all()
            continue
        tenth = int(np.ceil(there.size / 10))
        np.testing.assert_allclose(
            [low, high, spread], [there[:tenth].mean(), there[-tenth:].mean(), there.std()], atol=1e-6
        )


@pytest.mark.slow
def test_the_chart_shows_clients_from_the_worst_to_the_best(result):
    chart = pausejax.charts(result)["client_accuracy_by_rank"]
    (panel,) = chart.panels
    assert len(panel.series) == 2
    values = 100 * np.sort(result["client_accuracy"].values.astype(np.float64), axis=1)
    values = values.reshape(2, 2, K).mean(axis=1)
    drawn = sorted(one.y.tolist() for one in panel.series)
    for line, expected in zip(drawn, sorted(values.tolist()), strict=True):
        assert line[0] == pytest.approx(expected[0]) and line[-1] == pytest.approx(expected[-1])
        assert line[len(line) // 5] == pytest.approx(expected[1])


@pytest.mark.slow
def test_a_client_without_held_out_samples_has_no_value():
    """Of 23 clients some own too few samples for a share of 2 % to be one of them."""
    found = pausejax.simulate(
        "random",
        seeds=[4],
        rounds=1,
        num_clients=23,
        clients_per_round=2,
        model="linear",
        train_samples=600,
        partition="dirichlet_quantity",
        concentration=0.5,
        client_metrics=True,
        held_out_share=0.02,
    )
    labels = data.load("digits").train_targets[:600]
    whole = data.partition.split("dirichlet_quantity", labels, 23, 4, batch_size=20, concentration=0.5)
    without = np.rint(0.02 * whole.sizes) == 0
    np.testing.assert_array_equal(np.isnan(found["client_accuracy"].values[0]), without)
    assert 0 < without.sum() < 23
    worst = np.sort(found["client_accuracy"].values[0][~without])[: -(-int((~without).sum()) // 10)]
    figure = analysis.finals(found, ["worst_client_accuracy"])["worst_client_accuracy"].item()
    assert figure == pytest.approx(worst.mean(dtype=float))


def test_a_share_too_small_for_any_client_is_refused():
    tiny = {**SPEC["data"], "held_out_share": 0.001}
    with pytest.raises(SpecError, match=r"data.held_out_share = 0.001: too small"):
        pausejax.simulate("random", rounds=1, client_metrics=True, **flat({**SPEC, "data": tiny}))


def line(*, data_dir):
    """Three numbers and their sum."""
    inputs = np.random.default_rng(0).normal(size=(90, 3)).astype(np.float32)
    targets = inputs.sum(axis=1, keepdims=True)
    return data.Dataset(inputs[:70], targets[:70], inputs[70:], targets[70:])


@pytest.mark.slow
@pytest.mark.usefixtures("own_parts")
def test_the_worst_clients_are_those_with_the_largest_error_where_less_is_better():
    parts.dataset(line)
    found = pausejax.simulate(
        "random",
        seeds=2,
        rounds=2,
        dataset="line",
        task="regression",
        model="linear",
        optimizer="sgd",
        batch_size=5,
        private=False,
        client_metrics=True,
        held_out_share=0.4,
        keep_models=True,
        num_clients=3,
        clients_per_round=1,
    )
    errors, figures = found["client_rmse"].values, analysis.finals(found)
    np.testing.assert_array_equal(figures["worst_client_rmse"], errors.max(axis=1))
    np.testing.assert_allclose(figures["client_rmse_spread"], errors.std(axis=1), rtol=1e-5)
    samples = line(data_dir=None)
    for run, model in enumerate(pausejax.models(found)):
        whole = data.partition.split("iid", samples.train_targets, 3, run, batch_size=5)
        cut = hold_out(whole, 0.4, run)
        for client, own in enumerate(np.split(rows(cut), np.cumsum(cut.held_out)[:-1])):
            missed = np.asarray(model.apply(model.weights, samples.train_inputs[own]))
            missed = missed - samples.train_targets[own]
            assert errors[run, client] == pytest.approx(np.sqrt((missed**2).mean()), rel=1e-4)
    (panel,) = pausejax.charts(found)["client_rmse_by_rank"].panels
    assert panel.series[0].y[0] == pytest.approx(errors.max(axis=1).mean(), rel=1e-5)


def simulate(out, progress=lambda _: None, *, shard=(1, 1), seconds=300.0, **limits):
    plan = make_plan(parse({**SPEC, "rounds": 60}))
    store = FolderStore(Folder(out), checkpoint_seconds=seconds)
    play(plan, LocalExecutor(DataCache(), **limits), store, shard=shard, progress=progress)


class Interrupted(BaseException):
    pass


@pytest.mark.slow
def test_a_killed_study_lanes_and_shards_test_the_same_clients(tmp_path):
    told = []

    def interrupt(advanced):
        told.append(advanced)
        if len(told) == 2:
            raise Interrupted

    simulate(tmp_path / "whole")
    with pytest.raises(Interrupted):
        simulate(tmp_path / "killed", interrupt, seconds=0.0)
    simulate(tmp_path / "killed")
    simulate(tmp_path / "lanes", max_width=2)
    simulate(tmp_path / "shards", shard=(1, 2), max_width=2)
    simulate(tmp_path / "shards", shard=(2, 2), max_width=2)
    whole = pausejax.open(tmp_path / "whole").load()
    for name in ("killed", "lanes", "shards"):
        assert_alike(whole, pausejax.open(tmp_path / name).load())
    simulate(tmp_path / "data", data_placement="sharded")
    found = pausejax.open(tmp_path / "data").load()
    np.testing.assert_allclose(found["client_accuracy"], whole["client_accuracy"], atol=0.1)


def test_off_means_that_nothing_changes():
    off = {**SPEC, "client_metrics": False, "keep_models": False}
    off["data"] = {name: value for name, value in SPEC["data"].items() if name != "held_out_share"}
    zero = {**off, "data": {**off["data"], "held_out_share": 0.0}}
    plans = [make_plan(parse(document)) for document in (off, zero, {**off, "data": SPEC["data"]})]
    assert plans[0].identities == plans[1].identities
    assert set(plans[0].identities).isdisjoint(plans[2].identities)
    assert not any("client" in name for name in plans[2].study.outputs.variables)
    whole = ClientSimulation(plans[0].study, plans[0].groups[0], DataCache())
    labels = data.load("digits").train_targets[:SAMPLES]
    for place, seed in enumerate(SPEC["seeds"]):
        expected = data.partition.split("dirichlet_quantity", labels, K, seed, batch_size=20)
        np.testing.assert_array_equal(whole.first_world.data.order[place], expected.order)
        np.testing.assert_array_equal(whole.first_world.data.size[place], expected.sizes)


@pytest.mark.parametrize(
    ("changed", "line"),
    [
        (
            {"data": {}},
            "client_metrics = true: needs held-out samples of every client. Set data.held_out_share > 0",
        ),
        ({"data": {"held_out_share": [0.0, 0.1]}}, "client_metrics = true: needs held-out samples"),
        (
            {"data": {"held_out_share": 1.0}},
            "data.held_out_share = 1.0: must be a finite number >= 0 and < 1",
        ),
        ({"stop_at_latency": 5.0}, "client_metrics = true: needs models after the last round"),
        ({"mode": "bandit", "data": {}, "training": {}, "privacy": {}}, 'mode = "bandit" trains no model'),
    ],
)
def test_what_can_not_be_tested_is_refused_before_any_compute(changed, line):
    with pytest.raises(SpecError) as refused:
        parse({**SPEC, "keep_models": False, **changed})
    (problem,) = refused.value.problems
    assert line in problem


def test_a_search_does_not_test_clients_at_a_simulated_time():
    with pytest.raises(SpecError, match="client_metrics: not allowed with --at-latency"):
        with_horizon(parse({**SPEC, "keep_models": False}, searched=True), SearchOptions(at_latency=3.0))


@pytest.mark.slow
def test_a_search_finds_settings_that_are_fair_at_a_round(result):
    training = {**SPEC["training"], "federated_algorithm": "fedavg", "learning_rate": [0.01, 0.3]}
    found = pausejax.search(
        "random",
        trials=2,
        fresh_seeds=1,
        metric="worst_client_accuracy",
        at_round=4,
        seeds=SPEC["seeds"],
        rounds=8,
        eval_every=2,
        client_metrics=True,
        **flat({**SPEC, "training": training}),
    )
    (row,) = [row for row in found.rows if row.values["learning_rate"] == 0.3]
    same = pausejax.select(result, {"federated_algorithm": "fedavg"})
    expected = analysis.finals(same)["worst_client_accuracy"].values.mean()
    assert row.figures["worst_client_accuracy"] == pytest.approx(expected, abs=1e-6)
