"""The sweep that takes all clients at once, against brute force and the one-by-one sweeps."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from pausejax.selection import _parallel
from pausejax.selection._blocks import sums_of_the_best
from pausejax.selection._thresholds import by_insertion
from pausejax.selection.exact import _settle, stand_ins


@pytest.mark.parametrize("size", [1, 5, 33, 130, 1030])
def test_the_best_of_every_time_add_up(size):
    rng = np.random.default_rng(size)
    rank = np.stack([np.arange(size), np.arange(size)[::-1], rng.permutation(size)]).astype(np.int32)
    arrival = np.argsort(rank, axis=1).astype(np.int32)
    score = rng.integers(-(2**20), 2**20, (3, size)).astype(np.int32)
    by_rank = np.take_along_axis(score, arrival, axis=1)
    for m in {1, (size + 1) // 2, size}:
        expected = [
            [row[: t + 1][np.argsort(place[: t + 1])[:m]].sum() for t in range(size)]
            for row, place in zip(score, rank, strict=True)
        ]
        sums = jax.jit(sums_of_the_best, static_argnums=4)(rank, arrival, score, by_rank, m)
        np.testing.assert_array_equal(sums, expected)


@pytest.mark.parametrize("by_pairs", [True, False])
@pytest.mark.parametrize(
    ("num_clients", "m"),
    [
        (1, 1),
        (20, 7),
        *(pytest.param(*both, marks=pytest.mark.slow) for both in ((20, 1), (20, 20), (40, 11))),
    ],
)
def test_evictions_bound_every_threshold_and_settle_on_the_same_set(num_clients, m, by_pairs, monkeypatch):
    if not by_pairs:
        monkeypatch.setattr(_parallel, "_LARGEST_SQUARE", 0)
    rng = np.random.default_rng(m)
    shape = (96, num_clients)
    kind = rng.integers(0, 3, (96, 1))
    ucb = np.where(kind == 0, rng.integers(0, 3, shape), rng.normal(size=shape))
    score = np.where(kind == 0, rng.integers(-2, 3, shape), rng.normal(size=shape))
    score = np.where(kind == 2, score * 10.0 ** rng.integers(-20, 20, shape), score)
    ucb = np.where(rng.random(shape) < rng.choice([0, 0.3], (96, 1)), np.inf, ucb)
    available = rng.random(shape) < rng.choice([0.5, 1], (96, 1))

    @jax.jit
    def run(ucb, score):
        _, ucb, score = stand_ins(ucb, score, m, available)
        one_by_one, at_once = by_insertion(ucb, score, m), _parallel.by_eviction(ucb, score, m)
        expected = _settle(ucb, score, m, one_by_one)
        best = _parallel.best_by_pairs if by_pairs else _parallel.best_by_one_sort
        got = _settle(ucb, score, m, at_once, best=best)
        if by_pairs:  # whose entries lie as the clients do
            order = jnp.argsort(-ucb, axis=1, stable=True)
            at_once = jax.tree.map(lambda x: jnp.take_along_axis(x, order, axis=1), at_once)
        return one_by_one, at_once, expected, got

    found = run(ucb.astype(np.float32), score.astype(np.float32))
    one_by_one, at_once, expected, got = jax.tree.map(np.asarray, found)
    enough = available.sum(axis=1) >= m
    np.testing.assert_array_equal(got.members[enough], expected.members[enough])
    np.testing.assert_array_equal(got.value, expected.value)
    counts = at_once.lower > -np.inf
    assert (at_once.lower <= one_by_one.lower)[counts].all()
    assert (at_once.upper >= one_by_one.upper)[counts].all()
