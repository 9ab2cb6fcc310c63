"""Partitioners: every sample has one owner, nobody lacks a minibatch, and the laws are as stated."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from pausejax import parts
from pausejax.data import partition

DRAWN = ("iid", "dirichlet_quantity", "dirichlet_label", "shards")
BALANCED = np.repeat(np.arange(10), 3000).astype(np.int32)
CONCENTRATIONS = st.sampled_from([1e-300, 1e-8, 1e-3, 0.1, 1.0, 100.0, 1e8])
OPTIONS = {
    "iid": st.fixed_dictionaries({}),
    "dirichlet_quantity": st.fixed_dictionaries({"concentration": CONCENTRATIONS}),
    "dirichlet_label": st.fixed_dictionaries({"concentration": CONCENTRATIONS}),
    "shards": st.fixed_dictionaries({"shards_per_client": st.integers(1, 4)}),
}


def check(found, labels, num_clients, batch_size):
    assert found.order.dtype == np.int32 and found.sizes.dtype == np.int32
    np.testing.assert_array_equal(np.sort(found.order), np.arange(len(labels)))
    assert found.sizes.shape == (num_clients,) and found.sizes.sum() == len(labels)
    assert found.sizes.min() >= batch_size
    for client in range(num_clients):
        start = found.offsets[client]
        own = labels[found.order[start : start + found.sizes[client]]]
        expected = np.bincount(own, minlength=labels.max() + 1)
        np.testing.assert_array_equal(found.label_counts(labels)[client], expected)


@pytest.mark.parametrize("name", DRAWN)
@settings(max_examples=60, deadline=None)
@given(st.data())
def test_every_sample_has_one_owner_and_every_client_a_minibatch(name, draw):
    num_clients = draw.draw(st.integers(1, 40), "num_clients")
    batch_size = draw.draw(st.integers(1, 8), "batch_size")
    spare = draw.draw(st.sampled_from([0, 1, 7, 500]), "spare")
    options = draw.draw(OPTIONS[name], "options")
    size = num_clients * max(batch_size, options.get("shards_per_client", 1)) + spare
    seed = draw.draw(st.integers(0, 2**31), "seed")
    num_labels = draw.draw(st.integers(1, 12), "num_labels")
    labels = np.random.default_rng(seed).geometric(0.3, size).clip(max=num_labels).astype(np.int32) - 1
    found = partition.split(name, labels, num_clients, seed, batch_size=batch_size, **options)
    check(found, labels, num_clients, batch_size)


@pytest.mark.parametrize("name", DRAWN)
def test_seed_and_nothing_else_decides(name):
    one = partition.split(name, BALANCED, 30, 5, batch_size=1)
    again, other = (
        partition.split(name, BALANCED, 30, 5, batch_size=1),
        partition.split(name, BALANCED, 30, 6, batch_size=1),
    )
    np.testing.assert_array_equal(one.order, again.order)
    np.testing.assert_array_equal(one.sizes, again.sizes)
    assert (one.order != other.order).mean() > 0.9


def test_partitioners_with_one_seed_draw_apart():
    draws = [partition.generator(name, 5).random() for name in (*DRAWN, "natural", "own")]
    assert len(set(draws)) == len(draws)


def test_iid_is_even_and_blind_to_labels():
    found = partition.iid(BALANCED, 7, 0, batch_size=1)
    assert np.ptp(found.sizes) <= 1
    # two-sided chi-squared test on a fixed seed: false alarm rate 2e-4
    pvalue = stats.chi2_contingency(found.label_counts(BALANCED)).pvalue
    assert 1e-4 < pvalue < 1 - 1e-4


@pytest.mark.parametrize("concentration", [0.02, 0.5, 3.0, 200.0])
def test_dirichlet_draws_have_beta_marginals(concentration):
    rng = np.random.default_rng(3)
    first = np.array([partition.dirichlet(rng, concentration, 6)[0] for _ in range(4000)])
    law = stats.beta(concentration, 5 * concentration)
    # Kolmogorov-Smirnov, false alarm rate 1e-4 per parameter
    assert stats.kstest(first, law.cdf).pvalue > 1e-4


def test_vanishing_concentration_gives_all_to_one():
    for seed in range(5):
        sizes = partition.dirichlet_quantity(BALANCED, 30, seed, batch_size=20, concentration=1e-300).sizes
        assert sorted(sizes)[-2:] == [20, 30_000 - 29 * 20]


def test_huge_concentration_gives_equal_sizes():
    sizes = partition.dirichlet_quantity(BALANCED, 30, 1, concentration=1e12, batch_size=1).sizes
    assert np.ptp(sizes) <= 1


@pytest.mark.parametrize(("num_clients", "concentration"), [(30, 3.0), (60, 2.0), (5, 10.0)])
def test_dominant_label_is_about_a_quarter(num_clients, concentration):
    shares = []
    for seed in range(5):
        found = partition.dirichlet_quantity(
            BALANCED, num_clients, seed, concentration=concentration, batch_size=1
        )
        counts = found.label_counts(BALANCED)
        shares += list(counts.max(1)[found.sizes >= 300] / found.sizes[found.sizes >= 300])
    assert abs(np.mean(shares) - partition.DOMINANT_SHARE) < 0.01
    assert min(shares) > 0.18 and max(shares) < 0.32


def test_dominant_labels_are_spread_over_the_labels():
    dominant = partition.dirichlet_quantity(BALANCED, 30, 0, batch_size=1).label_counts(BALANCED).argmax(1)
    assert np.bincount(dominant, minlength=10).min() >= 1


def test_label_dirichlet_concentrates_labels_as_its_parameter_falls():
    def labels_held(concentration):
        found = partition.dirichlet_label(BALANCED, 30, 0, concentration=concentration, batch_size=1)
        return (found.label_counts(BALANCED) > 10).sum(1).mean()

    held = [labels_held(c) for c in (0.01, 0.1, 1.0, 100.0)]
    assert held[0] < 1.5 and held[-1] == 10 and held == sorted(held)


def test_label_dirichlet_shares_each_label_by_the_law():
    counts = [
        partition.dirichlet_label(BALANCED, 5, s, concentration=0.5, batch_size=1).label_counts(BALANCED)
        for s in range(60)
    ]
    shares = np.concatenate(counts, axis=1)[2] / 3000
    # Kolmogorov-Smirnov on 600 independent labels, false alarm rate 1e-4
    assert stats.kstest(shares, stats.beta(0.5, 2.0).cdf).pvalue > 1e-4


def test_shards_bound_the_labels_of_a_client():
    found = partition.shards(BALANCED, 50, 0, shards_per_client=2, batch_size=1)
    held = (found.label_counts(BALANCED) > 0).sum(1)
    # a shard of 300 of 3,000 equal labels holds one label
    assert held.max() == 2 and (found.sizes == 600).all()
    assert len({tuple(row) for row in found.label_counts(BALANCED) > 0}) > 20


def test_top_up_takes_from_the_largest_alone():
    owner = np.repeat([0, 1, 2, 3], [50, 40, 9, 1])
    topped = partition.top_up(owner, 5, 8, np.random.default_rng(0))
    assert np.bincount(topped).tolist() == [37, 38, 9, 8, 8]
    assert (topped[owner == 2] == 2).all() and (topped[owner == 3] == 3).all()


@pytest.mark.parametrize(
    ("name", "num_clients", "seed", "options", "message"),
    [
        ("iid", 0, 0, {}, "num_clients: must be at least 1, not 0"),
        ("iid", 5, -1, {}, "seed: must be >= 0, not -1"),
        ("iid", 5, 0, {"batch_size": 0}, "batch_size: must be at least 1, not 0"),
        ("shards", 11, 0, {"batch_size": 10}, "need 110 training samples, but the data set has 100"),
        ("iid", 101, 0, {}, "need 101 training samples, but the data set has 100"),
        ("shards", 10, 0, {"shards_per_client": 11}, "shards_per_client: must be from 1 to 10"),
        ("dirichlet_label", 5, 0, {"concentration": 0.0}, "concentration: must be positive and finite"),
        ("dirichlet_quantity", 5, 0, {"concentration": np.inf}, "concentration: must be positive and finite"),
        ("dirichlet_labels", 5, 0, {}, r"did you mean 'dirichlet_label'\?"),
    ],
)
def test_bad_arguments_are_named(name, num_clients, seed, options, message):
    with pytest.raises(ValueError, match=message):
        partition.split(name, np.arange(100) % 10, num_clients, seed, **({"batch_size": 1} | options))


def test_streams_of_the_built_in_partitioners_never_change():
    """The numbers that every published result has been drawn with."""
    for stream, name in enumerate(DRAWN):
        expected = np.random.default_rng([stream, 7]).random(3)
        np.testing.assert_array_equal(partition.generator(name, 7).random(3), expected)


def test_natural_owners_are_kept_and_shuffled_by_seed():
    owner = np.array([2, 0, 1, 1, 2, 2, 1, 2])
    labels = np.zeros(8)
    for seed in (0, 1):
        found = partition.split("natural", labels, 3, seed, batch_size=20, owner=owner)
        np.testing.assert_array_equal(found.sizes, [1, 3, 4])
        np.testing.assert_array_equal(owner[found.order], np.repeat([0, 1, 2], [1, 3, 4]))
    with pytest.raises(ValueError, match="num_clients must be 3, the data set's number of owners, not 4"):
        partition.split("natural", labels, 4, 0, batch_size=20, owner=owner)
    with pytest.raises(ValueError, match="must have an array `owner`"):
        partition.split("natural", labels, 4, 0, batch_size=20, owner=None)


@pytest.mark.parametrize(
    ("made", "message"),
    [
        (np.zeros(7, int), r"integers \[8\], the owner of each sample, not int64 \[7\]"),
        (np.zeros(8), r"integers \[8\], the owner of each sample, not float64 \[8\]"),
        (np.full(8, 3), "owners must be from 0 to 2, not 3 to 3"),
        (np.zeros(8, int), "each of the 3 clients must own one sample or more"),
        (
            partition.Partition(np.zeros(8, int), np.array([2, 3, 3])),
            "each of the 8 samples must have exactly",
        ),
    ],
)
def test_a_partitioner_of_ones_own_and_its_mistakes(made, message):
    def halves(labels, num_clients, seed):
        return np.arange(len(labels)) % num_clients

    def wrong(labels, num_clients, seed):
        return made

    own = partition.split(parts.read("partition", halves), np.zeros(8), 3, 0)
    np.testing.assert_array_equal(np.sort(own.order[:3]), [0, 3, 6])
    with pytest.raises(parts.PartError, match=message) as raised:
        partition.split(parts.read("partition", wrong), np.zeros(8), 3, 0)
    assert str(raised.value).startswith(f"{__file__}: partition wrong: ")
