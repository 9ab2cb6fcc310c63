"""Rounds that overlap, against an event queue, and what does not go with them."""

import heapq

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import pausejax
from pausejax import kinds, network, parts
from pausejax.clients.inputs import FAILURE, round_key
from pausejax.federated.aggregators import Aggregator
from pausejax.network import Close, Ending, Work
from pausejax.policies import Policy, cohort, memoryless
from pausejax.study.spec import SpecError

K, M, ROUNDS, SEEDS = 9, 3, 60, 50
BANDIT = {"mode": "bandit", "seeds": SEEDS, "rounds": ROUNDS, "num_clients": K, "clients_per_round": M}
SETTINGS = [
    {"concurrency": 6},
    {"concurrency": 4, "failure_probability": 0.3},
    {"concurrency": 9, "failure_probability": 0.3, "failure_stage": "after_release"},
    {"concurrency": 8, "availability": "bernoulli", "availability_probability": 0.5},
    {"concurrency": 5, "availability": "markov", "failure_probability": 0.2},
    {"concurrency": 3, "failure_probability": 0.4},
    {"latency": "lognormal", "concurrency": 7},
    {"latency": "lognormal", "concurrency": 6, "failure_probability": 0.1},
    {"latency": "shifted_exponential", "concurrency": 9},
    {"latency": "shifted_exponential", "concurrency": 4, "availability": "bernoulli"},
]


def latencies(options):
    """What every client takes in every round, [seeds, rounds, K], from a study in which all wait."""
    from pausejax.clients.conditions import draw_network
    from pausejax.data.host import DataCache
    from pausejax.execution.local import LocalExecutor
    from pausejax.study.plan import make_plan

    own = ("latency", "min_latency")
    document = {
        key: value for key, value in BANDIT.items() if key not in ("num_clients", "clients_per_round")
    }
    place = {"num_clients": K, "clients_per_round": M, **{k: v for k, v in options.items() if k in own}}
    plan = make_plan(kinds.parse({**document, "network": place, "policy": [{"name": "random"}]}))
    made = LocalExecutor(DataCache()).program(plan.study, plan.groups[0], None).simulation
    world, hyper = made.arguments(plan.groups[0].runs)

    @jax.jit
    @jax.vmap
    def draw(seed, hyper):
        def one(t):
            drawn = draw_network(made.config, {}, t, round_key(seed, t), hyper, (), jnp.zeros(K, jnp.int32))
            chance = jax.random.uniform(jax.random.fold_in(round_key(seed, t), FAILURE), (K,))
            return drawn.latency, chance

        return jax.vmap(one)(jnp.arange(1, ROUNDS + 1))

    return jax.tree.map(np.asarray, draw(world.seed, hyper))


@pytest.mark.slow
@pytest.mark.parametrize("place", range(len(SETTINGS)))
def test_rounds_are_those_of_an_event_queue(place):
    """Ten settings times fifty seeds."""
    options = SETTINGS[place]
    found = pausejax.simulate(policies=["random"], ending="buffered", **BANDIT, **options).load()
    latency, chance = latencies(options)
    fails = chance < np.float32(options.get("failure_probability", 0.0))
    waiting = options["concurrency"] - M
    stage = options.get("failure_stage", "before_release")
    for run in range(SEEDS):
        now, queue, releases, failed_of, steps = 0.0, [], np.zeros(K, int), [], 0
        for t in range(ROUNDS):
            cohort = found["selected"].values[run, t]
            cohort = cohort[cohort >= 0]
            busy = {client for _, _, client, _ in queue}
            assert not busy & set(cohort.tolist()) and len(set(cohort.tolist())) == len(cohort)
            for client in cohort:
                begun = t, steps
                job = now + float(latency[run, t, client]), begun, int(client), bool(fails[run, t, client])
                heapq.heappush(queue, job)
            number = max(len(queue) - waiting, 0) if len(cohort) else min(M, len(queue))
            done = [heapq.heappop(queue) for _ in range(number)]
            ends = max((job[0] for job in done), default=now)
            if not done and not queue:
                ends = now + 0.05  # nobody is at work: a round of one minimum latency
            assert found["round_latency"].values[run, t] == pytest.approx(ends - now, rel=1e-3, abs=1e-4)
            now = ends
            if waiting:
                arrived = found["arrived"].values[run, t]
                assert sorted(arrived[arrived >= 0]) == sorted(c for _, _, c, fail in done if not fail)
                ages = [steps - begun[1] for _, begun, _, fail in done if not fail]
                expected = np.mean(ages) if ages else np.nan
                np.testing.assert_allclose(found["staleness"].values[run, t], expected, rtol=1e-6)
            steps += any(not fail for *_, fail in done)
            failed_of.append(sum(fail for *_, fail in done))
            for _, _, client, fail in done:
                releases[client] += not fail or stage == "after_release"
        np.testing.assert_array_equal(found["releases"].values[run], releases)
        if "failed_count" in found:
            np.testing.assert_array_equal(found["failed_count"].values[run], failed_of)
        assert found["elapsed"].values[run, -1] == pytest.approx(now, rel=1e-4)


SMALL = {
    "rounds": 12,
    "eval_every": 1,
    "seeds": 2,
    "train_samples": 120,
    "model": "linear",
    "batch_size": 10,
    "max_steps": 2,
    "num_clients": 6,
    "clients_per_round": 2,
}


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["bandit", pytest.param("training", marks=pytest.mark.slow)])
def test_as_many_at_work_as_count_are_rounds_that_wait(mode):
    options = {**SMALL, "policies": ["pause", "random"], "failure_probability": 0.3}
    if mode == "bandit":
        options = {**options, "mode": "bandit"}
        for name in ("eval_every", "train_samples", "model", "batch_size", "max_steps"):
            del options[name]
    plain = pausejax.simulate(**options).load()
    found = pausejax.simulate(ending="buffered", concurrency=2, **options).load()
    names = {"elapsed", "selected", "counts", "releases", "max_leakage", "failed_count", "test_loss"}
    for name in sorted(names & set(plain.data_vars)):
        np.testing.assert_array_equal(found[name].values, plain[name].values)


@pytest.mark.slow
@pytest.mark.parametrize("policy", ["pause", "value_per_second", "oort", "clustered_similarity"])
def test_policies_learn_from_clients_that_were_selected_before(policy):
    """Every policy plays; those that remember know whoever has finished, and nobody else."""
    found = pausejax.simulate(policies=[policy], ending="buffered", **{**SMALL, "rounds": 30}).load()
    assert np.isfinite(found["test_loss"].values).all()
    assert (found["releases"].sum("client") <= found["counts"].sum("client")).all()
    assert float(found["test_loss"][:, -1].max()) < float(found["test_loss"][:, 0].min())


@pytest.mark.slow
@pytest.mark.parametrize("policy", ["random", "power_of_choice"])
def test_weights_do_not_depend_on_the_cohort_in_which_a_client_began(policy, own_parts):
    """Without discount, in proportion to data or equal: cohorts have from 0 to 4 of the 10 clients."""

    def relative(seen):
        share = seen.data_share[jnp.maximum(seen.members, 0)] if policy == "random" else 1.0
        return seen.weights / share

    @parts.quantity(reduce="mean")
    def largest_weight(seen):
        return jnp.max(jnp.where(seen.arrived, relative(seen), 0.0))

    @parts.quantity(reduce="mean")
    def smallest_weight(seen):
        return jnp.min(jnp.where(seen.arrived, relative(seen), jnp.inf))

    options = {**SMALL, "rounds": 40, "num_clients": 10, "clients_per_round": 4, "eval_every": 40}
    options |= {"availability": "bernoulli", "availability_probability": 0.4}
    options |= {"partition": "dirichlet_label", "concentration": 0.5}
    options |= {"ending": "buffered", "staleness_exponent": 0.0}
    result = pausejax.simulate(policy, quantities=["largest_weight", "smallest_weight"], **options)
    assert len(np.unique((result["selected"].values >= 0).sum(axis=-1))) > 2
    several = (result["arrived"].values >= 0).sum(axis=-1) > 1
    assert several.any()
    largest, smallest = (result[name].values[several] for name in ("largest_weight", "smallest_weight"))
    np.testing.assert_allclose(largest, smallest, rtol=1e-5)


def test_older_updates_count_less():
    """An exponent of 0 is the mean; a large one leaves fresh updates alone."""
    ending = network.buffered(clients_per_round=2, num_clients=9, concurrency=4, staleness_exponent=0.5)
    work = Work(
        client=jnp.array([4, 1, 7, -1]),
        latency=jnp.array([3.0, 1.0, 2.0, 0.5]),
        fails=jnp.array([False, True, False, False]),
        age=jnp.array([3, 1, 0, 0]),
    )
    close = ending.close(work)
    np.testing.assert_allclose(close.factor, [0.5, 2**-0.5, 1, 1], rtol=1e-6)
    assert close.done.tolist() == [False, True, False, False] and not close.counts.any()
    assert float(close.duration) == 1.0


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"concurrency": 1}, "concurrency = 1: must be from clients_per_round = 2 to num_clients = 6"),
        ({"concurrency": 7}, "concurrency = 7: must be from"),
        ({"federated_algorithm": "feddyn"}, 'federated_algorithm = "feddyn": its clients keep a state'),
        ({"aggregator": "median"}, 'aggregator = "median": must be "mean", because ending buffered'),
        (
            {"policies": ["fedavg"]},
            "policy fedavg: selects 6 clients a round. With ending buffered the policy must select 2",
        ),
        ({"late": "released"}, "network.late"),
        ({"selection_gap": True}, "selection_gap"),
    ],
)
def test_what_does_not_go_with_overlapping_rounds(options, message):
    with pytest.raises(SpecError, match=message):
        pausejax.simulate(**{"policies": ["random"], "ending": "buffered", **SMALL, **options})


def test_updates_that_an_own_ending_drops_are_late(own_parts):
    """As with a bound on their age. What clients release is aggregated or late."""

    @parts.ending
    def fresh_only(*, clients_per_round: int, spare: int = 2) -> Ending:
        """The first clients that are done; updates of an earlier model do not count."""

        def close(work: Work) -> Close:
            there = work.client >= 0
            order = jnp.argsort(jnp.argsort(jnp.where(there, work.latency, jnp.inf), stable=True))
            number = jnp.where(jnp.any(there[spare:]), jnp.sum(there) - spare, clients_per_round)
            done = there & (order < number)
            duration = jnp.max(jnp.where(done, work.latency, 0.0))
            return Close(duration, done & (work.age == 0) & ~work.fails, done)

        return Ending(close, waiting=spare)

    options = {**BANDIT, "seeds": 3, "late": "released", "failure_probability": 0.2}
    for endings in ("fresh_only", ["deadline", "fresh_only"]):
        result = pausejax.simulate("random", ending=endings, **options)
        own = result.isel(
            run=np.flatnonzero(np.broadcast_to(result["ending"] == "fresh_only", result.sizes["run"]))
        )
        arrived = (own["arrived"].values >= 0).sum(axis=(1, 2))
        late = own["late_count"].values.sum(axis=1)
        assert (late > 0).all()
        np.testing.assert_array_equal(arrived + late, own["releases"].values.sum(axis=1))


def test_own_policies_are_told_when_they_select_a_client_at_work(own_parts):
    @parts.policy
    def stubborn(*, clients_per_round: int) -> Policy:
        """Always the first clients."""
        return memoryless(lambda key, state, view: cohort(jnp.arange(clients_per_round), state.data_share))

    with pytest.raises(
        parts.PartError, match=r"policy stubborn: round 2: client . is selected, but is not available"
    ):
        pausejax.simulate(policies=["stubborn"], ending="buffered", mode="bandit", rounds=6, num_clients=6)


def test_an_own_ending_that_waits_for_all_has_regrets(own_parts):
    """Also if no run of the study has the package's ending."""

    @parts.ending
    def patient() -> Ending:
        """Waits for all."""

        def close(work: Work) -> Close:
            there = work.client >= 0
            return Close(jnp.max(jnp.where(there, work.latency, 0.0)), there)

        return Ending(close, waits_for_all=True)

    found, usual = (
        pausejax.simulate("random", ending=one, **{**BANDIT, "seeds": 2}) for one in ("patient", "all")
    )
    for name in ("regret", "pseudo_regret", "reward"):
        np.testing.assert_array_equal(found[name], usual[name])


def test_an_own_ending_that_waits_for_all_counts_all(own_parts):
    @parts.ending
    def mine() -> Ending:
        """Counts nobody."""
        return Ending(lambda work: Close(jnp.float32(1.0), work.client < 0), waits_for_all=True)

    with pytest.raises(parts.PartError, match="all updates must count with waits_for_all"):
        pausejax.simulate(policies=["random"], ending="mine", mode="bandit", rounds=6, num_clients=30)


@pytest.mark.parametrize(
    ("close", "waiting", "message"),
    [
        (lambda work: Close(jnp.float32(jnp.nan), work.client >= 0), 0, "the duration must be finite"),
        (lambda work: Close(jnp.float32(-1.0), work.client >= 0), 0, "the duration must be finite and >= 0"),
        *(
            (
                lambda work, factor=factor: Close(
                    jnp.float32(1.0), work.client >= 0, None, jnp.full(work.client.shape, factor)
                ),
                0,
                r"the duration .*, factors in \[0, 1\]",
            )
            for factor in (-0.5, 1.5, jnp.nan)
        ),
        (
            lambda work: Close(jnp.float32(1.0), work.client < 0, work.client < 0),
            0,
            "the duration .* clients may continue only with Ending",
        ),
        (
            lambda work: Close(jnp.float32(1.0), work.client < 0, work.client < 0),
            2,
            "more clients finish or still train",
        ),
    ],
)
def test_own_endings_are_told_what_they_may_not_do(close, waiting, message, own_parts):
    @parts.ending
    def mine() -> Ending:
        """Wrong."""
        return Ending(close, waiting=waiting)

    with pytest.raises(parts.PartError, match=f"ending mine: round .: {message}"):
        pausejax.simulate(policies=["random"], ending="mine", mode="bandit", rounds=6, num_clients=30)


@pytest.mark.slow
@pytest.mark.parametrize("waiting", [0, 2])
@pytest.mark.parametrize("every", [False, True])
def test_a_factor_multiplies_the_weights_whether_clients_may_wait_or_not(waiting, every, own_parts):
    """One step of plain averaging: the model moves by the factor times its move with factor 1."""

    @parts.ending
    def scaled(*, size: float = 1.0) -> Ending:
        """Everybody counts, with the factor `size`."""

        def close(work):
            factor = jnp.full(work.client.shape, size, jnp.float32)
            return Close(jnp.float32(1.0), work.client >= 0, None, factor)

        return Ending(close, waits_for_all=every and not waiting, waiting=waiting)

    asked = {**SMALL, "seeds": 1, "rounds": 1, "model": "linear", "private": False, "keep_models": True}
    result = pausejax.simulate("random", ending="scaled", size=[0.0, 0.25, 1.0], **asked)
    start, quarter, whole = result["final_model"].values
    assert np.abs(whole - start).max() > 1e-3
    np.testing.assert_allclose(quarter - start, 0.25 * (whole - start), atol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("waiting", [0, 2])
def test_every_aggregator_sees_the_factors(waiting, own_parts):
    """Updates of factor 0 leave the model as it is, and factors of updates that fail are not read."""

    @parts.ending
    def scaled(*, size: float = 1.0) -> Ending:
        """Everybody who does not fail counts, with the factor `size`."""

        def close(work):
            counts = (work.client >= 0) & ~work.fails
            return Close(jnp.float32(1.0), counts, None, jnp.where(counts, size, jnp.nan))

        return Ending(close, waiting=waiting)

    @parts.aggregator
    def by_weight() -> Aggregator:
        """The weighted mean, made of single updates."""

        def combine(updates, weights):
            return jnp.sum(jnp.where(weights[:, None] > 0, updates * weights[:, None], 0.0), axis=0)

        return Aggregator(combine)

    asked = {**SMALL, "seeds": 1, "rounds": 3, "model": "linear", "private": False, "keep_models": True}
    asked |= {"ending": "scaled", "failure_probability": 0.4, "server_optimizer": "fedavgm"}
    moved = {}
    for aggregator in ("mean",) if waiting else ("mean", "by_weight", "median", "krum"):
        result = pausejax.simulate("random", aggregator=aggregator, size=[0.0, 0.25, 1.0], **asked)
        zero, *moved[aggregator] = result["final_model"].values
        start = pausejax.simulate("random", **{**asked, "rounds": 1}, size=0.0)["final_model"].values[0]
        np.testing.assert_array_equal(zero, start)
        assert np.isfinite(moved[aggregator]).all()
    np.testing.assert_allclose(moved.get("by_weight", moved["mean"]), moved["mean"], atol=1e-6)
