"""The law by which a curve grows: which rounds count, and how the error is measured."""

import numpy as np
import pytest

from pausejax.report.growth import growth

N = np.arange(1, 1001)


@pytest.mark.parametrize("rounds", [999, 1000])
def test_fewer_than_a_thousand_rounds_have_no_law(rounds):
    found = growth(N[:rounds], 2 * np.sqrt(N[:rounds]))
    assert (found is not None) == (rounds == 1000)
    # Rounds that no run has recorded do not count.
    ended = growth(N, np.where(np.arange(1000) < rounds, N**0.8, np.nan))
    assert (ended is not None) == (rounds == 1000)
    assert growth(N, np.full(1000, np.nan)) is None


@pytest.mark.parametrize(
    ("curve", "grows"),
    [
        (lambda n: n - 100, False),
        (lambda n: n - 99.5, True),
        (lambda n: n * 0.0 + 3, False),
        (lambda n: 1 / n, False),
        (lambda n: 2 + 0.0 * n + (n == 1000), True),
        (lambda n: 5.0 - (n == 100), True),
        (lambda n: 5e-4 * n, True),
    ],
)
def test_a_law_is_of_a_positive_curve_that_has_grown_over_the_last_decade(curve, grows):
    found = growth(N, curve(N))
    assert (found is not None) == grows
    if found:
        assert found.rounds[0] == 100 and found.rounds[-1] == 1000 and (np.diff(found.rounds) > 0).all()
        # Rounds are evenly spread over log n: as many below the geometric mean of the ends as above.
        assert np.median(found.rounds) == pytest.approx(np.sqrt(100 * 1000), rel=0.02)
        np.testing.assert_allclose(
            found.error, np.sqrt(np.mean((found.fitted / curve(found.rounds) - 1) ** 2))
        )


@pytest.mark.parametrize(
    ("shape", "law"), [(np.log, "a + b log n"), (np.sqrt, "a + b √n"), (lambda n: 0.3 * n**0.71, "∝ n^0.71")]
)
def test_the_fit_is_that_of_least_relative_error(shape, law):
    bent = shape(N) + 20 * (law[0] == "a") + 0.01 * np.sin(N / 90)
    found = growth(N, bent)
    assert found.law == law
    n, value = found.rounds, bent[found.rounds.astype(int) - 1]
    if law[0] == "a":
        # Every value as 1: weighted least squares by the normal equations.
        design = np.stack([np.ones(n.size), shape(n)], 1) / value[:, None]
        fitted = value * (design @ np.linalg.lstsq(design, np.ones(n.size), rcond=None)[0])
    else:
        design = np.stack([np.ones(n.size), np.log(n)], 1)
        fitted = np.exp(design @ np.linalg.lstsq(design, np.log(value), rcond=None)[0])
    np.testing.assert_allclose(found.fitted, fitted, rtol=1e-9)


def test_growth_is_that_of_the_last_decade_of_rounds():
    """Where few rounds are recorded the last but one says nothing of where the decade begins."""
    n = np.array([*range(1, 1000, 10), 3000, 10_000])
    found = growth(n, np.sqrt(n))
    assert found.rounds[0] == 3000 and found.rounds[-1] == 10_000
