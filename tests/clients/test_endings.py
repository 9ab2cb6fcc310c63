"""Studies whose rounds end otherwise than with the slowest: by hand from what they record."""

import numpy as np
import pytest

import pausejax
from pausejax import kinds
from pausejax.clients.variables import REGRETS
from pausejax.study.document import SpecError
from pausejax.study.plan import make_plan

K, M, ROUNDS = 9, 3, 40
ASKED = {"mode": "bandit", "seeds": 3, "rounds": ROUNDS, "num_clients": K, "clients_per_round": M}
POLICIES = ["pause", "random", "value_per_second"]


def simulate(**more):
    return pausejax.simulate(**{"policies": POLICIES, **ASKED, **more}).load()


@pytest.fixture(scope="module")
def plain():
    return simulate(failure_probability=0.2)


@pytest.mark.slow
def test_the_first_of_just_as_many_and_a_distant_deadline_are_the_paper_s_round(plain):
    for more in ({"ending": "first", "extra_clients": 0}, {"ending": "deadline", "round_deadline": 1e6}):
        found = simulate(failure_probability=0.2, **more)
        for name in (
            "elapsed",
            "round_latency",
            "selected",
            "counts",
            "releases",
            "max_leakage",
            "failed_count",
        ):
            np.testing.assert_array_equal(found[name].values, plain[name].values)
        assert (found["late_count"] == 0).all()


@pytest.mark.slow
@pytest.mark.parametrize("extra", [1, 3])
def test_the_first_m_of_a_larger_cohort_count_and_end_the_round(extra):
    found = simulate(policies=["random"], ending="first", extra_clients=extra)
    alone = alone_latencies()
    for run in range(3):
        spent = np.zeros(K)
        for t in range(ROUNDS):
            cohort = found["selected"].values[run, t]
            assert (cohort >= 0).sum() == M + extra
            met = alone[run, t, cohort]
            order = np.argsort(met, kind="stable")
            assert found["round_latency"].values[run, t] == pytest.approx(met[order[M - 1]], rel=1e-6)
            spent[cohort[order[:M]]] += 1
        np.testing.assert_array_equal(found["releases"].values[run], spent)
        assert (found["late_count"].values[run] == extra).all()


@pytest.mark.parametrize("deadline", [pytest.param(0.2, marks=pytest.mark.slow), 0.6])
def test_a_deadline_ends_a_round_and_who_is_late_spends_nothing(deadline):
    found = simulate(policies=["random"], ending="deadline", round_deadline=deadline)
    alone = alone_latencies()
    for run in range(3):
        spent = np.zeros(K)
        for t in range(ROUNDS):
            cohort = found["selected"].values[run, t]
            met = alone[run, t, cohort]
            in_time = met <= np.float32(deadline)
            ends = min(met.max(), np.float32(deadline))
            assert found["round_latency"].values[run, t] == pytest.approx(ends, rel=1e-6)
            assert found["late_count"].values[run, t] == (~in_time).sum()
            spent[cohort[in_time]] += 1
        np.testing.assert_array_equal(found["releases"].values[run], spent)


def alone_latencies():
    """What every client takes in every round, [seeds, rounds, K]: the same for every policy and ending."""
    from pausejax.clients.conditions import draw_network
    from pausejax.clients.inputs import round_key
    from pausejax.data.host import DataCache
    from pausejax.execution.local import LocalExecutor

    plan = make_plan(kinds.parse({**document(), "policy": [{"name": "random"}]}))
    simulation = LocalExecutor(DataCache()).program(plan.study, plan.groups[0], None).simulation
    runs = plan.groups[0].runs
    world, hyper = simulation.arguments([*runs, runs[0]])  # an even number: tests have two devices
    drawn = [
        [
            draw_network(
                simulation.config,
                world.files,
                t,
                round_key(world.seed[run], t),
                {name: leaf[run] for name, leaf in hyper.items()},
                (),
                np.zeros(simulation.config.num_clients, np.int32),
            ).latency
            for t in range(1, ROUNDS + 1)
        ]
        for run in range(3)
    ]
    return np.array(drawn)


def document():
    return {
        "mode": "bandit",
        "seeds": 3,
        "rounds": ROUNDS,
        "network": {"num_clients": K, "clients_per_round": M},
    }


@pytest.mark.slow
def test_regrets_are_those_of_rounds_that_wait_for_all():
    found = simulate(policies=["pause"], ending=["all", "first"])
    waits = found["ending"].values == "all"
    assert np.isfinite(found["pseudo_regret"].values[waits]).all()
    assert np.isnan(found["pseudo_regret"].values[~waits]).all()
    alone = simulate(policies=["pause"], ending="first")
    assert not set(REGRETS) & set(alone.data_vars)
    assert "max_leakage_vs_time" in pausejax.charts(alone)
    with pytest.raises(SpecError, match="expected_regret"):
        simulate(ending="first", expected_regret=True)


def test_older_results_hold_since_the_default_is_in_no_identity():
    named = make_plan(kinds.parse({**document(), "policy": [{"name": "random"}]}))
    other = document()
    other["network"] = {**other["network"], "ending": "deadline"}
    late = make_plan(kinds.parse({**other, "policy": [{"name": "random"}]}))
    assert named.identities != late.identities
    settings = named.study.settings("random", named.runs[0].values)
    assert "ending" not in settings and "ending" in late.study.settings("random", late.runs[0].values)


@pytest.mark.slow
def test_what_late_clients_learn_reaches_no_model():
    """With a deadline that nobody meets the model stays what it was, and rounds last as long as that."""
    found = pausejax.simulate(
        "random",
        seeds=1,
        rounds=4,
        eval_every=1,
        num_clients=4,
        clients_per_round=2,
        train_samples=120,
        ending="deadline",
        round_deadline=1e-3,
    ).load()
    assert len(np.unique(found["test_loss"].values)) == 1
    np.testing.assert_allclose(found["round_latency"].values, 1e-3)
    assert (found["releases"] == 0).all() and (found["max_leakage"] == 0).all()
