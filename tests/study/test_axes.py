"""Ranges, zipped lists, and what they multiply to."""

import itertools
import math
import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import pausejax
from pausejax.kinds import parse
from pausejax.study.axes import SAMPLING, Factor, Range, Sampling, columns, factors, points, sample
from pausejax.study.plan import make_plan
from pausejax.study.spec import SpecError

METHODS = SAMPLING["method"].choices
LOG = {"log_uniform": [1.0, 100.0]}


def plan(**document):
    return make_plan(parse({"rounds": 10, "mode": "bandit", **document}))


def values(plan, label, *names):
    """The points of a policy, in the order of its runs, over some parameters."""
    return [tuple(run.values[name] for name in names) for run in plan.runs if run.policy == label]


@settings(max_examples=60, deadline=None)
@given(
    method=st.sampled_from(METHODS),
    seed=st.integers(0, 2**31 - 1),
    n=st.integers(1, 200),
    column=st.integers(0, 43),
)
def test_fractions_lie_in_the_unit_interval(method, seed, n, column):
    fractions = sample("generalization_weight", column, Sampling(n, method, seed))
    assert fractions.shape == (n,)
    assert ((fractions >= 0) & (fractions < 1)).all()


@settings(max_examples=60, deadline=None)
@given(
    method=st.sampled_from(["sobol", "random"]),
    seed=st.integers(0, 1000),
    few=st.integers(1, 100),
    more=st.integers(0, 100),
    column=st.integers(0, 20),
)
def test_more_points_keep_the_first_ones(method, seed, few, more, column):
    short = sample("momentum", column, Sampling(few, method, seed))
    long = sample("momentum", column, Sampling(few + more, method, seed))
    np.testing.assert_array_equal(short, long[:few])


@settings(max_examples=100, deadline=None)
@given(
    law=st.sampled_from(["uniform", "log_uniform"]),
    ends=st.lists(st.floats(1e-30, 1e30), min_size=2, max_size=2, unique=True),
    fractions=st.lists(st.floats(0, 1, exclude_max=True), min_size=1, max_size=20),
)
def test_values_stay_in_the_range_and_have_six_digits(law, ends, fractions):
    low, high = sorted(ends)
    found = Range(law, low, high).at(np.array(fractions))
    assert all(low <= value <= high for value in found)
    # A value in another decimal form would not be the one that a user reads off a table and types.
    assert all(value in (low, high) or value == float(f"{value:g}") for value in found)
    assert sorted(found) == [value for _, value in sorted(zip(fractions, found, strict=True))]


@settings(max_examples=60, deadline=None)
@given(low=st.integers(0, 2**31 - 2), width=st.integers(1, 1000), n=st.integers(1, 64))
def test_integers_reach_both_ends_and_no_further(low, width, n):
    high = min(low + width, 2**31 - 1)
    found = Range("int_uniform", low, high).at(np.append(np.linspace(0, 1, n, endpoint=False), 1 - 2**-53))
    assert found[0] == low and found[-1] == high
    assert all(type(value) is int and low <= value <= high for value in found)


def test_values_keep_six_digits():
    assert Range("uniform", 1.0, 2.0).at(np.array([1 / 3, 0.9999999])) == [1.33333, 2.0]
    assert Range("log_uniform", 1e-6, 1.0).at(np.array([0.55])) == [float(f"{10**-2.7:.6g}")]


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.filterwarnings("error")
def test_any_number_of_points_is_welcome(method):
    for n in (1, 3, 100):
        assert len(sample("momentum", 2, Sampling(n, method, 0))) == n


@pytest.mark.parametrize("method", ["sobol", "latin_hypercube"])
def test_each_stratum_holds_one_point(method):
    for column, name in enumerate(["generalization_weight", "privacy_weight", "deadline", "momentum"]):
        fractions = sample(name, column, Sampling(64, method, 7))
        assert sorted(np.floor(fractions * 64)) == list(range(64))


def test_sobol_points_are_a_net_in_two_dimensions():
    """64 points of the first two columns: one in each box of every grid of 64 equal boxes."""
    settings = Sampling(64, "sobol", 3)
    x, y = sample("privacy_weight", 0, settings), sample("deadline", 1, settings)
    for power in range(7):
        boxes = set(zip(np.floor(x * 2**power), np.floor(y * 2 ** (6 - power)), strict=True))
        assert len(boxes) == 64


def test_laws_are_what_their_names_say():
    """Kolmogorov distance of a stratified sample is below 1/n, whatever the seed."""
    fractions = sample("generalization_weight", 0, Sampling(1024, "sobol", 0))
    for law, distribution in (
        ("uniform", lambda value: (value - 1) / 99),
        ("log_uniform", lambda value: math.log(value) / math.log(100)),
    ):
        found = sorted(Range(law, 1.0, 100.0).at(fractions))
        steps = np.arange(len(found)) / len(found)
        assert np.abs([distribution(value) for value in found] - steps).max() < 2 / len(found)
    dice = Range("int_uniform", 1, 4).at(fractions)
    assert [dice.count(face) for face in (1, 2, 3, 4)] == [256] * 4


def test_columns_and_seeds_draw_apart():
    draws = [
        tuple(sample(name, column, Sampling(8, "sobol", seed)))
        for name, column, seed in itertools.product(["momentum", "deadline"], [0, 1], [0, 1])
    ]
    assert len(set(draws)) == len(draws)


@pytest.mark.parametrize("method", METHODS)
def test_policies_meet_the_same_values_of_a_shared_range(method):
    shared = {"sampling": {"n": 12, "method": method}, "reward": {"alpha": LOG, "gamma": LOG}}
    names = ("generalization_weight", "privacy_weight")
    alone = plan(**shared, policy=[{"name": "pause"}])
    together = plan(
        **shared,
        policy=[
            {"name": "pause"},
            {"name": "random"},
            {"name": "sa_pause", "kappa": {"uniform": [1, 9]}},
            {"name": "pause", "label": "fixed", "gamma": 5},
            {"name": "pause", "label": "wide", "gamma": {"log_uniform": [10, 1000]}},
        ],
    )
    first = values(alone, "pause", *names)
    assert len(set(first)) == 12
    for label in ("pause", "random", "sa_pause"):
        assert values(together, label, *names) == first
    assert values(together, "fixed", "generalization_weight") == [(alpha,) for alpha, _ in first]
    # A policy's own ends: the same point of the design, so ten times the value.
    wide = values(together, "wide", *names)
    np.testing.assert_allclose(np.array(wide)[:, 1], 10 * np.array(first)[:, 1], rtol=2e-5)
    known = set(alone.identities)
    assert {
        id for id, run in zip(together.identities, together.runs, strict=True) if run.policy == "pause"
    } == known


def test_a_policy_runs_no_point_twice():
    found = plan(
        sampling={"n": 16},
        seeds=3,
        selection={"deadline": {"uniform": [0.5, 2.0]}, "J": {"int_uniform": [1, 2]}},
        policy=[{"name": "fedcs"}, {"name": "sa_pause"}, {"name": "random"}],
    )
    assert [len(values(found, label)) for label in ("fedcs", "sa_pause", "random")] == [16 * 3, 2 * 3, 3]
    assert len(set(found.identities)) == len(found.runs)
    assert found.axes == ("deadline", "annealing_steps")


def test_lists_and_seeds_multiply_the_design():
    found = plan(
        sampling={"n": 8}, seeds=2, reward={"alpha": LOG, "gamma": [1, 5, 25]}, policy=[{"name": "pause"}]
    )
    assert len(found.runs) == 8 * 3 * 2
    pairs = set(values(found, "pause", "generalization_weight", "privacy_weight"))
    assert len(pairs) == 8 * 3 and len({alpha for alpha, _ in pairs}) == 8


def test_a_sampled_value_typed_again_is_the_same_run():
    sampled = plan(sampling={"n": 5}, reward={"alpha": LOG}, policy=[{"name": "pause"}])
    shown = [f"{alpha:g}" for (alpha,) in values(sampled, "pause", "generalization_weight")]
    typed = plan(reward={"alpha": [float(text) for text in shown]}, policy=[{"name": "pause"}])
    assert typed.identities == sampled.identities


def test_more_points_keep_the_runs():
    few, many = (
        plan(sampling={"n": n}, reward={"alpha": LOG, "gamma": LOG}, policy=[{"name": "pause"}])
        for n in (10, 37)
    )
    assert many.identities[:10] == few.identities


def test_a_part_of_a_factor_has_each_row_once():
    product = [Factor(("a", "b"), ((1, 7), (1, 8), (2, 8))), Factor(("c",), ((5,), (6,)))]
    assert list(points(product, ["a"])) == [{"a": 1}, {"a": 2}]
    assert [tuple(point.values()) for point in points(product, ["c", "b"])] == [
        (5, 7),
        (6, 7),
        (5, 8),
        (6, 8),
    ]
    assert list(points(product, [])) == [{}]


@settings(max_examples=100, deadline=None)
@given(st.data())
def test_points_against_brute_force(data):
    """Any mixture of lists, zipped lists and ranges equals the product written out."""
    names = ["min_latency", "fast_latency", "slow_latency", "privacy_weight", "deadline"]
    kinds = {name: data.draw(st.sampled_from(["list", "zip", "range"])) for name in names}
    zipped = tuple(name for name in names if kinds[name] == "zip")
    if len(zipped) < 2:
        zipped = ()
    length = data.draw(st.integers(2, 4))
    axes = {}
    for name in names:
        if kinds[name] == "range":
            axes[name] = Range("uniform", 1.0, 2.0)
        else:
            size = length if name in zipped else data.draw(st.integers(1, 3))
            distinct = name not in zipped
            column = st.lists(st.integers(0, 3).map(float), min_size=size, max_size=size, unique=distinct)
            axes[name] = tuple(data.draw(column))
    settings = Sampling(4, "sobol", 0)
    place = columns(axes, axes)
    wanted = data.draw(
        st.lists(st.sampled_from(names), unique=True).map(lambda some: sorted(some, key=names.index))
    )

    expected = set()
    ranged = {
        name: axis.at(sample(name, place[name], settings)) for name, axis in axes.items() if name in place
    }
    free = [name for name in names if name not in zipped and name not in ranged]
    for point in range(4 if ranged else 1):
        for step in range(length if zipped else 1):
            for combination in itertools.product(*(axes[name] for name in free)):
                whole = dict(zip(free, combination, strict=True))
                whole |= {name: axes[name][step] for name in zipped}
                whole |= {name: column[point] for name, column in ranged.items()}
                expected.add(tuple(whole[name] for name in wanted))
    groups = (zipped,) if zipped else ()
    found = list(points(factors(axes, groups, place, settings), wanted))
    assert all(list(point) == wanted for point in found)
    assert len(found) == len(expected)
    assert {tuple(point.values()) for point in found} == expected


@pytest.mark.slow
def test_every_range_law_and_method_reaches_the_device():
    result = pausejax.simulate(
        [{"name": "pause", "gamma": {"uniform": np.array([1.0, 3.0])}}, "random"],
        mode="bandit",
        rounds=4,
        seeds=2,
        alpha={"log_uniform": (1, 100)},
        K={"int_uniform": [6, 7]},
        m=2,
        sampling={"n": 5, "method": "random"},
    )
    assert result.sizes["run"] == 2 * 5 * 2
    alpha = result["generalization_weight"].values
    assert ((alpha >= 1) & (alpha <= 100)).all() and len(set(alpha)) == 5
    assert set(result["num_clients"].values) <= {6, 7}
    paired = [alpha[result["policy"].values == label] for label in ("pause", "random")]
    np.testing.assert_array_equal(*paired)
    # The reward of round 1 is bought with α: no two points earn the same.
    rewards = result["reward"].values[result["seed"].values == 0][:5, 0]
    assert np.isfinite(rewards).all() and len(set(rewards)) == 5


def test_every_numeric_parameter_takes_a_range():
    words = parse({"policy": [{"name": "pause"}]}).words
    read, idle = set(), []
    for name, parameter in words.parameters.items():
        if parameter.kind not in (int, float):
            continue
        low = parameter.low + 1 if parameter.kind is int else parameter.low + 0.25
        law = "int_uniform" if parameter.kind is int else "uniform"
        ends = [low, low + 1] if parameter.kind is int else [low, low + 0.2]
        document = {parameter.section: {name: {law: ends}}, "network": {"num_clients": 99}}
        if parameter.section == "network":
            fast = {"fast_latency": 1.0 if name == "min_latency" else 0.2, "slow_latency": 9.0}
            document["network"] = {"num_clients": 99, "clients_per_round": 1, **fast, name: {law: ends}}
        document |= {"sampling": {"n": 4}, "policy": [{"name": "pause"}]}
        key = f"{parameter.section}.{name}"
        try:
            assert parse(document).axes[name] == Range(law, *ends)
            read.add(name)
        except SpecError as error:
            idle += [(key, error.problems)]
    for key, problems in idle:
        assert len(problems) == 1
        assert re.fullmatch(rf"spec: {key} = {{.*}}: .*no run of this study reads it", problems[0])
    assert {"learning_rate", "privacy_weight", "fast_latency", "num_clients"} <= read
    assert not {"momentum", "annealing_steps", "concentration"} & read
