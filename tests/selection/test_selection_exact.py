"""`best_set` and `brute_force` against float64 enumeration, a heap sweep, and each other, bit for bit."""

import heapq
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from pausejax.rounding import tree_sum
from pausejax.selection import best_set, brute_force
from pausejax.selection._rows import argsort
from pausejax.selection._thresholds import by_insertion, by_replacement
from pausejax.selection.exact import _settle, stand_ins

EPSILON = 2.0**-24


# --- Instances


def exact_instances(rng, count, num_clients):
    """ucb and score [count, K] of a few small integers times one power of two: every sum is a float32."""
    shape = (count, num_clients)
    levels = rng.integers(1, 8, (count, 1))
    ucb = rng.integers(0, levels + 1, shape).astype(np.float64)
    score = rng.integers(-levels, levels + 1, shape).astype(np.float64)
    kind = rng.integers(0, 6, (count, 1))
    ucb = np.where(kind == 0, 1.0, ucb)
    score = np.where(kind == 1, -2.0, score)
    # Trading one for the other: every threshold ties or nearly does.
    score = np.where(kind == 2, levels - ucb, score)
    scale = 2.0 ** rng.choice([-90, -20, 0, 20, 90], (count, 1))
    unexplored = rng.random(shape) < rng.choice([0.0, 0.2, 0.6, 1.0], (count, 1))
    return np.where(unexplored, np.inf, ucb * scale).astype(np.float32), (score * scale).astype(np.float32)


def rounded_instances(rng, count, num_clients):
    """Instances where float32 rounds: normal, of mixed magnitudes, and with scores that vanish beside ucb."""
    shape = (count, num_clients)
    kind = rng.integers(0, 4, (count, 1))
    ucb, score = rng.normal(size=shape), rng.normal(size=shape) / 3
    ucb = np.where(kind == 1, ucb * 10.0 ** rng.integers(-20, 20, shape), ucb)
    score = np.where(kind == 1, score * 10.0 ** rng.integers(-20, 20, shape), score)
    ucb = np.where(kind == 2, 1e8 + rng.integers(0, 3, shape), ucb)
    score = np.where(kind == 3, np.float32(0.1) + rng.integers(0, 4, shape) * 2.0**-27, score)
    unexplored = rng.random(shape) < rng.choice([0.0, 0.3], (count, 1))
    return np.where(unexplored, np.inf, ucb).astype(np.float32), score.astype(np.float32)


# --- Oracles


def enumerate_sets(ucb, score, m):
    """All sets in lexicographic order, [C, m], and in float64 the min of ucb and Σ score of each, [N, C]."""
    sets = np.array(list(itertools.combinations(range(ucb.shape[1]), m)))
    return sets, ucb.astype(np.float64)[:, sets].min(-1), score.astype(np.float64)[:, sets].sum(-1)


def first_best(slowest, total):
    """The first set of the largest value; sets worth +inf are compared by Σ score."""
    infinite = np.isinf(slowest)
    value = np.where(infinite, total, np.where(infinite.any(1, keepdims=True), -np.inf, slowest + total))
    return value.argmax(1)


def heap_sweep(ucb, score, m):
    """Descending thresholds, each + the sum of the m best scores that reach it, in float64, [K - m + 1]."""
    heap, total, values = [], 0.0, []
    for k in np.argsort(-ucb, kind="stable"):
        heapq.heappush(heap, float(score[k]))
        total += float(score[k])
        if len(heap) > m:
            total -= heapq.heappop(heap)
        if len(heap) == m:
            values.append(float(ucb[k]) + total)
    return np.array(values)


def value_of(ucb, score, members):
    """min ucb + Σ score in float64, [N], and what float32 may round in it."""
    chosen = np.take_along_axis(score.astype(np.float64), members, 1)
    slowest = np.take_along_axis(ucb.astype(np.float64), members, 1).min(1)
    return slowest + chosen.sum(1), 8 * EPSILON * (np.abs(slowest) + np.abs(chosen).sum(1))


def assert_valid(members, num_clients):
    assert members.dtype == jnp.int32
    assert (members >= 0).all() and (members < num_clients).all()
    assert (np.diff(members, axis=1) > 0).all()


def solve(ucb, score, m):
    """`best_set` and `brute_force` of a batch, compiled quickly rather than well."""
    both = jax.jit(jax.vmap(lambda u, s: (best_set(u, s, m), brute_force(u, s, m))))
    compiled = both.lower(ucb, score).compile({"xla_backend_optimization_level": 0})
    return jax.tree.map(np.asarray, compiled(ucb, score))


# --- Small networks

SMALL = [(k, m) for k in (1, 2, 3, 5, 10) for m in range(1, k + 1)]
OTHERS = [(k, m) for k in (4, 6, 7, 8, 9) for m in range(1, k + 1)]


def sized(sizes, slow):
    return [pytest.param(*size, marks=pytest.mark.slow if slow else ()) for size in sizes]


@pytest.mark.parametrize(("num_clients", "m"), sized(SMALL, False) + sized(OTHERS, True))
def test_both_equal_float64_enumeration(num_clients, m):
    # 21 default sizes of 480 instances: 10,080.
    rng = np.random.default_rng([num_clients, m])
    ucb, score = exact_instances(rng, 240, num_clients)
    rounded = rounded_instances(rng, 240, num_clients)
    best, brute = solve(np.concatenate([ucb, rounded[0]]), np.concatenate([score, rounded[1]]), m)
    assert_valid(best.members, num_clients)
    np.testing.assert_array_equal(best.members, brute.members)
    np.testing.assert_array_equal(best.value, brute.value)

    sets, slowest, total = enumerate_sets(ucb, score, m)
    expected = first_best(slowest, total)
    np.testing.assert_array_equal(best.members[:240], sets[expected])
    rows = np.arange(240)
    np.testing.assert_array_equal(best.value[:240], (slowest + total)[rows, expected].astype(np.float32))

    sets, slowest, total = enumerate_sets(*rounded, m)
    found = np.array([np.flatnonzero((sets == row).all(1))[0] for row in best.members[240:]])
    expected = first_best(slowest, total)
    infinite = np.isinf(slowest[rows, expected])
    np.testing.assert_array_equal(np.isinf(slowest[rows, found]), infinite)
    slowest = np.where(infinite[:, None], 0.0, slowest)
    magnitude = np.abs(rounded[1].astype(np.float64))[:, sets].sum(-1) + np.where(
        np.isinf(slowest), 0, np.abs(slowest)
    )
    value = slowest + total
    loss = value[rows, expected] - value[rows, found]
    assert (loss <= 8 * EPSILON * np.maximum(magnitude[rows, expected], magnitude[rows, found])).all()


@pytest.mark.slow
def test_both_agree_at_paper_size():
    rng = np.random.default_rng(5)
    batches = [exact_instances(rng, 6, 30), rounded_instances(rng, 6, 30)]
    ucb, score = (np.concatenate(parts) for parts in zip(*batches, strict=True))
    best, brute = jax.jit(jax.vmap(lambda u, s: (best_set(u, s, 5), brute_force(u, s, 5))))(ucb, score)
    np.testing.assert_array_equal(best.members, brute.members)
    np.testing.assert_array_equal(best.value, brute.value)


def adversarial(dtype=np.float32):
    """Any float32 for scores; any but NaN and -inf for ucb. XLA flushes subnormal numbers on some devices."""
    finite = st.floats(width=32, allow_nan=False, allow_infinity=False, allow_subnormal=False)
    common = st.one_of(st.sampled_from([0.0, -0.0, 1.0, 1.0 + 2**-23, 2.0**24]), finite)
    ucb = hnp.arrays(dtype, 6, elements=st.one_of(common, st.just(np.inf)))
    return st.tuples(ucb, hnp.arrays(dtype, 6, elements=common))


@pytest.mark.slow
@settings(max_examples=300, deadline=None)
@given(adversarial(), st.sampled_from([2, 3]))
def test_both_agree_on_arbitrary_floats(instance, m):
    best, brute = best_set(*instance, m), brute_force(*instance, m)
    np.testing.assert_array_equal(best.members, brute.members)
    np.testing.assert_array_equal(best.value, brute.value)
    assert_valid(np.asarray(best.members)[None], 6)


@pytest.mark.parametrize(
    ("ucb", "score", "expected"),
    [
        ([1, 1, 1, 1], [0, 0, 0, 0], [0, 1]),
        ([1, 1, 1, 1], [0, 1, 0, 0], [0, 1]),
        ([5, 5, 3, 3], [0, 0, 1, 1], [0, 1]),  # the higher threshold has the lower indices ...
        ([3, 3, 5, 5], [1, 1, 0, 0], [0, 1]),  # ... or the lower threshold has
        ([6, 4, 5, 4], [1, 0, 0, 1], [0, 2]),  # the tied sets share a client
        ([4, 4, 5, 6], [1, 0, 0, 1], [0, 3]),
        ([np.inf, 2, np.inf, np.inf], [0, 9, 1, 1], [2, 3]),
        ([np.inf, 2, 1, 0], [1, 1, 1, 0], [0, 1]),  # one unexplored client never binds ...
        ([np.inf, 2, 1, 0], [0, 1, 1, 9], [1, 3]),  # ... nor is it forced in
        ([0, -0.0, 0, -0.0], [-0.0, 0, -0.0, 0], [0, 1]),
    ],
)
def test_ties_and_infinities_by_hand(ucb, score, expected):
    ucb, score = np.array(ucb, np.float32), np.array(score, np.float32)
    assert best_set(ucb, score, 2).members.tolist() == expected
    assert brute_force(ucb, score, 2).members.tolist() == expected


def test_rounding_does_not_hide_a_truly_better_client():
    # Beside 2^24 every score vanishes, so that all sets are worth the same to float32.
    ucb = np.full(5, 2.0**24, np.float32)
    score = np.array([0.1, 0.2, 0.1, 0.3, 0.2], np.float32)
    assert best_set(ucb, score, 2).members.tolist() == [1, 3]
    assert brute_force(ucb, score, 2).members.tolist() == [1, 3]


# --- Large networks


def large_instance(kind, num_clients):
    rng = np.random.default_rng(11)
    ucb, score = rng.normal(size=(2, num_clients))
    if kind == "integers":
        ucb, score = rng.integers(0, 50, num_clients), rng.integers(-20, 20, num_clients)
    if kind == "opposed":  # the faster a client, the less it scores: every client enters the running top m
        score = -ucb + 1e-3 * score
    if kind == "cancelling":  # large scores come and go before the optimum
        score = np.where(rng.random(num_clients) < 0.5, 1e4, -1e4) * rng.random(num_clients) + score
    return ucb.astype(np.float32), score.astype(np.float32)


@pytest.mark.parametrize("kind", ["normal", "integers", "opposed", "cancelling"])
def test_large_networks_equal_a_float64_heap_sweep(kind):
    num_clients, m = 100_000, 1000
    ucb, score = large_instance(kind, num_clients)
    members, value = best_set(ucb, score, m)
    members = np.asarray(members)[None]
    assert_valid(members, num_clients)
    found, rounding = value_of(ucb[None], score[None], members)
    # Clients of equal ucb share their threshold; an entry that misses some of them is not the largest.
    best = heap_sweep(ucb, score, m).max()
    if kind == "integers":
        assert found[0] == best == value
    else:
        assert best - found[0] <= rounding[0]
        assert abs(value - found[0]) <= rounding[0]


# --- Both ways of bounding a threshold


@pytest.mark.slow
@pytest.mark.parametrize("m", [1, 7, 20])
def test_bounds_hold_and_both_sweeps_settle_on_the_same_set(m):
    rng = np.random.default_rng(m)
    batches = [exact_instances(rng, 64, 20), rounded_instances(rng, 64, 20)]
    ucb, score = (np.concatenate(parts) for parts in zip(*batches, strict=True))
    _, ucb, score = stand_ins(jnp.asarray(ucb), jnp.asarray(score), m)

    @jax.jit
    def run(ucb, score):
        inserted, replaced = by_insertion(ucb, score, m), by_replacement(ucb, score, m)
        results = [_settle(ucb, score, m, bounds) for bounds in (inserted, replaced)]
        return inserted, replaced, results

    inserted, replaced, (first, second) = jax.tree.map(np.asarray, run(ucb, score))
    np.testing.assert_array_equal(first.members, second.members)
    np.testing.assert_array_equal(first.value, second.value)
    ucb, score = np.asarray(ucb), np.asarray(score)
    for row, threshold in itertools.product(range(128), range(20)):
        threshold = ucb[row, threshold]
        eligible = np.sort(score[row][ucb[row] >= threshold].astype(np.float64))[::-1]
        entries = inserted.lower[row][inserted.threshold[row] == threshold]
        at = replaced.threshold[row] == threshold
        lower, upper = (bound[row][at].max(initial=-np.inf) for bound in (replaced.lower, replaced.upper))
        if len(eligible) < m or threshold == -np.inf:
            assert entries.max() == lower == upper == -np.inf
            continue
        magnitude = abs(threshold) + m * np.abs(eligible[:m]).max()
        assert abs(entries.max() - (threshold + eligible[:m].sum())) <= 1e-6 * magnitude
        assert lower <= entries.max() <= upper
        assert upper - lower <= 1e-5 * (magnitude + m * np.abs(score[row]).max())


def test_the_running_sum_of_replacements_does_not_drift():
    num_clients, m = 20_000, 3
    rng = np.random.default_rng(12)
    ucb = (rng.permutation(num_clients) / 3000).astype(np.float32)
    score = (rng.normal(size=num_clients) / 1000 - ucb).astype(np.float32)
    bounds = jax.jit(by_replacement, static_argnums=2)(ucb[None], score[None], m)
    entries = bounds.lower[0] > -np.inf
    lower, upper = (np.asarray(bound[0][entries])[::-1] for bound in (bounds.lower, bounds.upper))
    value = heap_sweep(ucb, score, m)
    assert (lower <= value).all() and (value <= upper).all()


# --- Batches


@pytest.mark.slow
def test_the_batch_changes_no_bit():
    ucb, score = rounded_instances(np.random.default_rng(3), 48, 40)
    whole = jax.jit(jax.vmap(lambda u, s: best_set(u, s, 6)))(ucb, score)
    alone = [best_set(u, s, 6) for u, s in zip(ucb[:6], score[:6], strict=True)]
    for i, single in enumerate(alone):
        np.testing.assert_array_equal(single.members, whole.members[i])
        np.testing.assert_array_equal(single.value, whole.value[i])

    def body(carry, ucb_and_score):
        return carry, jax.vmap(jax.vmap(lambda u, s: best_set(u, s, 6)))(*ucb_and_score)

    shaped = ucb.reshape(2, 6, 4, 40), score.reshape(2, 6, 4, 40)
    scanned = jax.jit(lambda xs: jax.lax.scan(body, 0, xs)[1])(shaped)
    np.testing.assert_array_equal(scanned.members.reshape(48, 6), whole.members)
    np.testing.assert_array_equal(scanned.value.reshape(48), whole.value)

    mesh, runs = jax.sharding.Mesh(np.array(jax.devices()[:2]), ("runs",)), jax.P("runs")
    apart = jax.device_put((ucb, score), jax.NamedSharding(mesh, runs))
    batch = jax.vmap(lambda u, s: best_set(u, s, 6))
    split = jax.shard_map(batch, mesh=mesh, in_specs=runs, out_specs=runs, check_vma=False)
    for sharded in (jax.jit(batch)(*apart), jax.jit(split)(*apart)):
        np.testing.assert_array_equal(sharded.members, whole.members)
        np.testing.assert_array_equal(sharded.value, whole.value)


def test_one_argument_may_be_shared_by_the_batch():
    ucb, score = rounded_instances(np.random.default_rng(4), 8, 12)
    shared = jax.vmap(lambda s: best_set(ucb[0], s, 4))(score)
    copied = jax.vmap(lambda u, s: best_set(u, s, 4))(np.repeat(ucb[:1], 8, 0), score)
    np.testing.assert_array_equal(shared.members, copied.members)


def test_relabelling_the_clients_relabels_the_set():
    rng = np.random.default_rng(6)
    ucb, score = rng.normal(size=(2, 50)).astype(np.float32)
    new_label = rng.permutation(50)
    relabelled = best_set(ucb[np.argsort(new_label)], score[np.argsort(new_label)], 7)
    original = best_set(ucb, score, 7)
    np.testing.assert_array_equal(relabelled.members, np.sort(new_label[np.asarray(original.members)]))
    assert relabelled.value == original.value


# --- Bad input


@pytest.mark.parametrize("choose", [best_set, brute_force])
def test_missing_numbers_inside_jit_still_give_a_valid_set(choose):
    rng = np.random.default_rng(7)
    ucb, score = (rng.normal(size=(200, 7)).astype(np.float32) for _ in range(2))
    for array in (ucb, score):
        array[rng.random(array.shape) < rng.choice([0.0, 0.2, 1.0], (200, 1))] = np.nan
    score[rng.random(score.shape) < 0.1] = np.inf
    ucb[rng.random(ucb.shape) < 0.1] = -np.inf
    ucb[rng.random(ucb.shape) < 0.1] = np.inf
    members, value = jax.jit(jax.vmap(lambda u, s: choose(u, s, 3)))(ucb, score)
    assert_valid(members, 7)
    complete = (ucb > -np.inf).all(1) & np.isfinite(score).all(1)
    np.testing.assert_array_equal(np.isnan(value), ~complete)


@pytest.mark.parametrize("choose", [best_set, brute_force])
def test_nan_counts_as_the_worst(choose):
    pick = jax.jit(lambda u, s: choose(u, s, 2).members)
    assert pick(jnp.array([jnp.nan, 1, 0, 2]), jnp.zeros(4)).tolist() == [1, 3]
    assert pick(jnp.zeros(4), jnp.array([jnp.nan, 1, 0, 2])).tolist() == [1, 3]
    assert pick(jnp.array([jnp.nan, jnp.inf, 0, jnp.inf]), jnp.zeros(4)).tolist() == [1, 3]


@pytest.mark.parametrize("choose", [best_set, brute_force])
@pytest.mark.parametrize(
    ("ucb", "score", "m", "name"),
    [
        (np.zeros(4), np.zeros(4), 5, "m:"),
        (np.zeros(4), np.zeros(4), 0, "m:"),
        (np.zeros(4), np.zeros(4), 2.5, "m:"),
        (np.zeros(4), np.zeros(3), 2, "score:"),
        (np.zeros((2, 4)), np.zeros((2, 4)), 2, "score:"),
        (np.array([0, np.nan]), np.zeros(2), 1, "ucb:"),
        (np.array([0, -np.inf]), np.zeros(2), 1, "ucb:"),
        (np.zeros(2), np.array([0, np.nan]), 1, "score:"),
        (np.zeros(2), np.array([0, np.inf]), 1, "score:"),
    ],
)
def test_bad_input_is_named(choose, ucb, score, m, name):
    with pytest.raises(ValueError, match=f"^{name}"):
        choose(ucb, score, m)


def test_brute_force_refuses_too_many_sets():
    with pytest.raises(ValueError, match=r"^m: 10 of 60 clients make 75394027566 sets; .* at most"):
        brute_force(np.zeros(60), np.zeros(60), 10)


# --- Parts


@pytest.mark.parametrize("shape", [(1, 1), (3, 5), (40, 33), (40, 384), (2, 385), (1, 70_000)])
def test_argsort_is_numpys_stable_one(shape):
    rng = np.random.default_rng(8)
    x = np.where(rng.random(shape) < 0.5, rng.integers(-3, 4, shape), rng.normal(size=shape)).astype(
        np.float32
    )
    x[rng.random(shape) < 0.05] = -np.inf
    x[rng.random(shape) < 0.05] = -0.0
    np.testing.assert_array_equal(jax.jit(argsort)(x), np.argsort(x, axis=1, kind="stable"))


def test_tree_sum_is_monotone_and_sums():
    rng = np.random.default_rng(9)
    x = rng.normal(size=(13, 2000)).astype(np.float32)
    higher = np.where(rng.random(x.shape) < 0.3, np.nextafter(x, np.float32(np.inf)), x)
    low, high = jax.jit(tree_sum)(x), jax.jit(tree_sum)(higher)
    assert (high >= low).all()
    np.testing.assert_allclose(low, x.astype(np.float64).sum(0), atol=1e-5)


def test_scores_however_small_rank_those_who_were_never_selected():
    """Their ucb is infinite: nothing may be added to the scores in which they would be lost."""
    score = jnp.asarray([1e-9, 3e-9, 2e-9, 0.0], jnp.float32)
    for choose in (best_set, brute_force):
        members, value = choose(jnp.full(4, jnp.inf), score, 2)
        assert members.tolist() == [1, 2] and value == jnp.inf
