"""Mechanisms, budgets that end, robust aggregation and late clients in whole studies."""

import itertools
import math

import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen

import pausejax
from pausejax import parts, privacy
from pausejax.analysis import comparing as analysis
from pausejax.kinds import parse
from pausejax.network import Law
from pausejax.privacy import accounting
from pausejax.study.spec import SpecError

NETWORK = {"num_clients": 6, "clients_per_round": 2}
BANDIT = {"mode": "bandit", "rounds": 40, "seeds": 2, **NETWORK}
SMALL = {
    "rounds": 12,
    "eval_every": 4,
    "seeds": 2,
    "train_samples": 120,
    "model": "linear",
    "batch_size": 10,
    "max_steps": 2,
    **NETWORK,
}


def most_releases(result):
    """Updates that the most selected client has released after each round, [run, round]."""
    found = []
    for selected in result["selected"].values:
        hits = (selected[:, :, None] == np.arange(6)).sum(axis=1).cumsum(axis=0)
        found.append(hits.max(axis=1))
    return np.stack(found)


@pytest.mark.slow
def test_every_mechanism_is_an_axis_with_a_ledger_of_its_own():
    result = pausejax.simulate(
        policies=["random"],
        mechanism=["laplace", "gaussian", "central_gaussian"],
        noise_multiplier=[1.0, 4.0],
        **SMALL,
    )
    assert result.sizes["run"] == 2 * (1 + 2 + 2)
    releases = most_releases(result)
    for run in range(result.sizes["run"]):
        one = result.isel(run=run)
        name, spent = str(one["mechanism"].values), one["max_leakage"].values
        if name == "laplace":
            expected = np.asarray(privacy.leakage(jnp.asarray(releases[run]), 40.0, 0.2))
            expected = 40.0 * -np.expm1(-float(one["budget_decay"]) * releases[run])
        else:
            sigma = float(one["noise_multiplier"]) / (2 if name == "gaussian" else 1)
            expected = privacy.gaussian_epsilon(releases[run], np.array(sigma), np.array(1e-5))
            np.testing.assert_array_equal(spent, one["max_leakage_update"].values)
        np.testing.assert_allclose(spent, expected, rtol=1e-5)
    gaussian = result.isel(run=np.flatnonzero(result["mechanism"].values == "gaussian"))
    assert "per coordinate" not in str(gaussian.attrs)


@pytest.mark.slow
def test_an_update_clipped_as_a_whole_leaks_as_a_whole():
    result = pausejax.simulate(policies=["random"], clip=["vector", "coordinate"], **SMALL)
    whole = result.isel(run=result["clip"].values == "vector")
    np.testing.assert_array_equal(whole["max_leakage"].values, whole["max_leakage_update"].values)
    each = result.isel(run=result["clip"].values == "coordinate")
    ratio = each["max_leakage_update"].values / each["max_leakage"].values
    np.testing.assert_allclose(ratio, 64 * 10 + 10, rtol=1e-6)


@pytest.mark.slow
def test_the_generator_of_a_spec_draws_the_noise():
    result = pausejax.simulate(policies=["random"], noise_generator=["threefry", "hash"], **SMALL)
    first, other = result["test_loss"].values[:2], result["test_loss"].values[2:]
    assert (first != other).all()


@pytest.mark.slow
def test_a_mechanism_reads_its_own_parameters_alone():
    result = pausejax.simulate(
        policies=["random"], mechanism=["laplace", "gaussian"], sensitivity=[0.01, 0.1], **SMALL
    )
    assert sorted(result["mechanism"].values) == ["gaussian"] * 2 + ["laplace"] * 4


@pytest.mark.slow
def test_noise_of_the_server_is_drawn_once_a_round_whatever_the_cohort():
    """With steps of 0 the model changes by the server's noise alone, of σ · clip_norm · largest weight."""
    changed = {}
    for size in (1, 6):
        options = SMALL | {"clients_per_round": size, "rounds": 4, "eval_every": 1}
        result = pausejax.simulate(
            policies=["random"],
            mechanism="central_gaussian",
            noise_multiplier=[1e-4, 1.0],
            learning_rate=1e-9,
            **options,
        )
        loss = result["test_loss"].values
        quiet, noisy = loss[:2], loss[2:]
        assert np.ptp(quiet, axis=1).max() < 1e-2 < np.ptp(noisy, axis=1).min()
        changed[size] = np.abs(np.diff(noisy, axis=1)).mean()
    assert changed[6] < changed[1] / 2


@pytest.mark.slow
@pytest.mark.parametrize("mechanism", ["laplace", "gaussian", "central_gaussian"])
@pytest.mark.parametrize("mode", ["bandit", pytest.param("training", marks=pytest.mark.slow)])
def test_a_client_whose_budget_is_spent_is_no_longer_available(mechanism, mode):
    limits = {"laplace": [12.0, 20.0], "gaussian": [6.0, 20.0], "central_gaussian": [6.0, 9.0]}[mechanism]
    options = BANDIT if mode == "bandit" else SMALL | {"rounds": 30, "eval_every": 30}
    result = pausejax.simulate(
        policies=["random", "pause"],
        mechanism=mechanism,
        stop_at_epsilon=[0.0, *limits],
        **({} if mechanism == "laplace" else {"noise_multiplier": 2.0}),
        **options,
    )
    for run in range(result.sizes["run"]):
        one = result.isel(run=run)
        limit, spent = float(one["stop_at_epsilon"]), one["max_leakage"].values
        if not limit:
            assert spent[-1] > min(limits) and (one["available_count"] == 6).all()
            continue
        assert spent.max() <= limit * (1 + 1e-6)
        # Whoever can't be selected has so many releases that one more would exceed the limit.
        releases = one["releases"].values
        most = releases.max()
        if mechanism == "laplace":
            beyond = 40.0 * -np.expm1(-float(one["budget_decay"]) * (most + 1))
        else:
            sigma = 2.0 / (2 if mechanism == "gaussian" else 1)
            beyond = privacy.gaussian_epsilon(np.array(most + 1), np.array(sigma), np.array(1e-5))
        count = one["available_count"].values
        if (count < 6).any():
            assert beyond > limit
        before = np.zeros(6, int)
        for round, selected in enumerate(one["selected"].values):
            assert count[round] == (before < most).sum() or not (count < 6).any()
            members = selected[selected >= 0]
            assert len(members) == min(2, count[round])
            before[members] += 1


@pytest.mark.slow
def test_charts_show_a_budget_only_where_every_mechanism_has_one():
    both, one = (
        pausejax.simulate(policies=["random"], mechanism=names, privacy_budget=2.0, **BANDIT)
        for names in (["laplace", "gaussian"], ["laplace"])
    )
    alone = pausejax.simulate(policies=["random"], mechanism="central_gaussian", **BANDIT)
    shown = [pausejax.charts(result)["max_leakage_vs_round"] for result in (both, one, alone)]
    levels = [chart.panels[0].levels for chart in shown]
    assert levels[0] == levels[2] == () and levels[1][0][1] == 2.0


@pytest.mark.slow
def test_a_budget_that_is_never_reached_changes_nothing():
    plain, limited = (
        pausejax.simulate(policies=["pause"], stop_at_epsilon=limit, **BANDIT) for limit in (0.0, 39.999)
    )
    for name in ("selected", "round_latency", "max_leakage", "pseudo_regret"):
        np.testing.assert_array_equal(plain[name].values, limited[name].values)


@pytest.mark.slow
@pytest.mark.parametrize("stage", ["before_release", "after_release"])
def test_a_trusted_server_spends_only_what_it_aggregates(stage):
    result = pausejax.simulate(
        policies=["random"],
        mechanism=["gaussian", "central_gaussian"],
        failure_probability=0.4,
        failure_stage=stage,
        **BANDIT,
    )
    local, central = (
        result.isel(run=result["mechanism"].values == name)
        for name in np.unique(result["mechanism"].values)[::-1]
    )
    np.testing.assert_array_equal(local["selected"].values, central["selected"].values)
    arrived = central["counts"].sum("client") - central["failed_count"].sum("round")
    np.testing.assert_array_equal(central["releases"].sum("client"), arrived)
    spends = local if stage == "after_release" else central
    expected = spends["counts"].sum("client") if stage == "after_release" else arrived
    np.testing.assert_array_equal(spends["releases"].sum("client"), expected)


@pytest.mark.slow
def test_when_clients_of_a_trusted_server_fail_does_not_matter():
    """They release nothing, so the oracle's own history is without them too."""
    before, after = (
        pausejax.simulate(
            policies=["pause", "random"],
            mechanism="central_gaussian",
            failure_probability=0.4,
            failure_stage=stage,
            **BANDIT,
        )
        for stage in ("before_release", "after_release")
    )
    assert (before["failed_count"] > 0).any() and (before["regret_own_history"] != 0).any()
    for name in before.data_vars:
        np.testing.assert_array_equal(before[name], after[name], err_msg=name)


@pytest.mark.slow
def test_late_clients_that_release_spend_privacy_and_are_known():
    """Under a deadline that the slow clients never keep, PAUSE explores them once; else for ever."""
    options = {"slow_latency": 5.0, "fast_latency": 0.2, "min_latency": 0.1, "ending": "deadline"}
    result = pausejax.simulate(
        policies=["pause"], late=["stopped", "released"], round_deadline=1.0, **BANDIT, **options
    )
    stopped, released = (result.isel(run=result["late"].values == name) for name in ("stopped", "released"))
    late = released["late_count"].sum("round")
    assert (late > 0).all() and (stopped["late_count"].sum("round") > 2 * late).all()
    np.testing.assert_array_equal(released["releases"], released["counts"])
    missing = (stopped["counts"] - stopped["releases"]).sum("client")
    np.testing.assert_array_equal(missing, stopped["late_count"].sum("round"))


@pytest.mark.slow
def test_one_wrong_client_ruins_the_mean_and_not_the_median(own_parts):
    """One client's labels are all wrong: a mechanism of one's own turns its updates into junk."""

    @parts.mechanism
    def junk(*, junk_size: float = 100.0) -> privacy.Mechanism:
        """The first release of a client is enormous."""

        def release(key, upload, number):
            return jnp.where(number == 1, junk_size * jnp.ones_like(upload), upload)

        return privacy.Mechanism(release, lambda releases, d: privacy.Leakage(*[0.0 * releases] * 2))

    options = SMALL | {"clients_per_round": 6, "rounds": 2, "eval_every": 1, "num_clients": 6}
    found = {}
    for name in ("mean", "median", "trimmed_mean", "krum"):
        result = pausejax.simulate(
            policies=["random"], aggregator=name, mechanism=["none", "junk"], **options
        )
        found[name] = result["test_loss"].values[:, -1]
    assert all(np.isfinite(loss[:2]).all() for loss in found.values())
    # All send junk in round 1, so no aggregator saves that round; ledger and program hold.
    assert (found["mean"][2:] > found["mean"][:2]).all()


@pytest.mark.parametrize(
    ("document", "message"),
    [
        ({"privacy": {"mechanism": "laplac"}}, "privacy.mechanism"),
        ({"privacy": {"mechanism": "none", "stop_at_epsilon": 3.0}}, "privacy.stop_at_epsilon"),
        ({"privacy": {"private": False, "stop_at_epsilon": 3.0}}, "privacy.stop_at_epsilon"),
        ({"privacy": {"mechanism": "gaussian", "delta": 1.0}}, "privacy.delta"),
        ({"mode": "bandit", "privacy": {"mechanism": "none"}}, "privacy.mechanism"),
        ({"network": {"late": "released"}}, "network.late"),
        ({"training": {"aggregator": "mode"}}, "training.aggregator"),
        ({"privacy": {"private": False, "mechanism": "gaussian"}}, "privacy.private"),
    ],
)
def test_what_does_not_fit_is_said_before_anything_is_computed(document, message):
    with pytest.raises(SpecError) as raised:
        parse({"policy": [{"name": "random"}], **document})
    assert any(message in problem for problem in raised.value.problems)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"aggregator": "median"}, 'aggregator = "median": must be "mean" with mechanism central_gaussian'),
        ({"model": "normed", "batch_statistics": "clear"}, 'batch_statistics = "clear": must be'),
    ],
)
def test_a_trusted_server_adds_its_noise_to_a_mean_of_everything(options, message, own_parts):
    class Normed(linen.Module):
        @linen.compact
        def __call__(self, images, training):
            flat = images.reshape(len(images), -1)
            return linen.Dense(10)(linen.BatchNorm(use_running_average=not training)(flat))

    @parts.model
    def normed():
        return Normed()

    with pytest.raises(SpecError, match=message):
        pausejax.simulate(
            policies=["random"], mechanism="central_gaussian", **(SMALL | {"dataset": "digits"} | options)
        )


def test_the_leakage_of_a_mechanism_of_ones_own_is_that_of_each_run(own_parts):
    """Its functions need not broadcast over runs."""

    @parts.mechanism
    def fading(*, first_budget: float = 0.5):
        spent = np.cumsum(first_budget * math.exp(-first_budget) * 0.9 ** np.arange(50))
        return privacy.Mechanism(
            lambda key, update, number: update,
            lambda n, d: privacy.Leakage(spent[n - 1] * (n > 0), spent[n - 1] * (n > 0) * d),
        )

    study = {"mode": "bandit", "rounds": 6, "num_clients": 4, "clients_per_round": 2, "seeds": 2}
    study |= {"mechanism": "fading", "first_budget": [0.5, 2.0]}
    result = pausejax.simulate("random", **study)
    for run in range(4):
        one = result.isel(run=run)
        each = np.float32(one["first_budget"]) * math.exp(-one["first_budget"]) * 0.9 ** np.arange(50)
        most = one["releases"].values.max()
        np.testing.assert_allclose(one["max_leakage"].values[-1], each[:most].sum(), rtol=1e-5)
    stopped = pausejax.simulate("random", **study, stop_at_epsilon=0.7)
    assert (stopped["max_leakage"].max("round") <= 0.7).all()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"release": lambda key, upload, number: upload[:-1]}, "release returns float32"),
        pytest.param({"leakage": lambda releases, d: (releases,)}, "leakage", marks=pytest.mark.slow),
        pytest.param(
            {"leakage": lambda releases, d: privacy.Leakage(releases * -1.0, releases)},
            "leakage must return",
            marks=pytest.mark.slow,
        ),
        ({"leakage": lambda n, d: privacy.Leakage(9.0 - n, 9.0 - n)}, "leakage must not decrease"),
        ({"server": lambda key, mean, weight: mean[0]}, "server returns float32"),
        (None, "must return a pausejax.privacy.Mechanism"),
    ],
)
def test_wrong_mechanisms_are_named_with_their_file(changes, message, own_parts):
    plain = privacy.Mechanism(lambda k, u, i: u, lambda r, d: privacy.Leakage(r * 1.0, r * 1.0))

    @parts.mechanism
    def wrong():
        return 3 if changes is None else plain._replace(**changes)

    with pytest.raises((SpecError, parts.PartError)) as raised:
        pausejax.simulate(policies=["random"], mechanism="wrong", **(SMALL | {"rounds": 2, "eval_every": 2}))
    line = str(raised.value)
    assert f"{__file__}: mechanism wrong: " in line and message in line and "\n" not in line


@pytest.mark.slow
def test_simulate_is_run_with_every_new_part(tmp_path):
    """One program for two settings, played side by side, one by one and alone: the same selections."""
    options = SMALL | {"optimizer": "sgd", "learning_rate": 0.1, "failure_probability": 0.2}
    whole = pausejax.simulate(
        policies=["pause"],
        federated_algorithm="scaffold",
        mechanism="gaussian",
        noise_multiplier=[0.5, 2.0],
        aggregator="mean",
        **options,
    )
    for place, multiplier in itertools.product(range(2), (0.5, 2.0)):
        alone = pausejax.simulate(
            policies=["pause"],
            federated_algorithm="scaffold",
            mechanism="gaussian",
            noise_multiplier=multiplier,
            **(options | {"seeds": [place, place + 7]}),
        )
        one = whole.isel(
            run=(whole["noise_multiplier"].values == multiplier) & (whole["seed"].values == place)
        )
        np.testing.assert_array_equal(one["selected"].values[0], alone["selected"].values[0])
        np.testing.assert_allclose(one["test_loss"].values[0], alone["test_loss"].values[0], rtol=1e-4)


@pytest.mark.parametrize("limit", [0.5, 1.5])
def test_a_limit_that_one_release_exceeds_is_refused(limit):
    """Nobody would ever play, and rounds of nobody are the fastest."""
    with pytest.raises(SpecError, match=f"privacy.stop_at_epsilon = {limit:g}: must be >= 1.568\\d"):
        pausejax.simulate(policies=["random"], stop_at_epsilon=[limit, 20.0], **BANDIT)


@pytest.mark.parametrize("mechanism", ["laplace", "central_gaussian"])
def test_a_limit_that_is_the_leakage_of_some_releases_allows_them(mechanism):
    """Although the limit and the leakage are rounded to float32."""
    allowed = np.arange(1, 41)
    if mechanism == "laplace":
        limits, own = [accounting.pure_epsilon(int(n), 40.0, 0.04) for n in allowed], {"budget_decay": 0.04}
    else:
        limits = [float(privacy.gaussian_epsilon(int(n), 2.0, 1e-5)) for n in allowed]
        own = {"noise_multiplier": 2.0}
    asked = {
        **BANDIT,
        "rounds": 45,
        "num_clients": 1,
        "clients_per_round": 1,
        "seeds": 1,
        "mechanism": mechanism,
    }
    result = pausejax.simulate("random", stop_at_epsilon=limits, **asked, **own)
    np.testing.assert_array_equal(result["releases"].values[:, 0], allowed)
    np.testing.assert_allclose(np.nanmax(result["max_leakage"].values, axis=1), limits, rtol=1e-6)
    below = [limit * (1 - 1e-6) for limit in limits[1:]]
    result = pausejax.simulate("random", stop_at_epsilon=below, **asked, **own)
    np.testing.assert_array_equal(result["releases"].values[:, 0], allowed[:-1])


def test_updates_of_a_trusted_server_do_not_choose_cohorts():
    with pytest.raises(SpecError, match="policy clustered_similarity: selects clients by their updates"):
        pausejax.simulate(policies=["clustered_similarity"], mechanism="central_gaussian", **SMALL)


@pytest.mark.slow
def test_leakages_of_unlike_things_are_not_compared():
    result = pausejax.simulate(policies=["random"], mechanism=["laplace", "gaussian"], **BANDIT)
    assert analysis.unlike(result, "max_leakage")["mechanism"] == ["gaussian", "laplace"]
    assert analysis.unlike(result, "max_leakage_update") == {} if "max_leakage_update" in result else True
    limits = pausejax.simulate(policies=["random"], stop_at_epsilon=[0.0, 20.0], **BANDIT)
    for name in ("mean_latency", "cumulative_pseudo_regret"):
        assert analysis.unlike(limits, name)["stop_at_epsilon"] == [0.0, 20.0]


@pytest.mark.slow
def test_a_limit_of_leakage_leaves_parameters_of_ones_own_alone(own_parts):
    """One that is named like the number of releases that the limit allows."""

    @pausejax.latency
    def fixed(*, num_clients, release_limit: float = 3.0):
        def seconds(key):
            return jnp.full(num_clients, release_limit)

        return Law(seconds, lambda function: function(seconds(None)))

    asked = {**BANDIT, "policies": ["random"], "latency": "fixed", "release_limit": [1.0, 3.0]}
    for limit in (0.0, 1000.0):
        result = pausejax.simulate(**asked, stop_at_epsilon=limit)
        np.testing.assert_array_equal(result["round_latency"][:, 0], result["release_limit"])
