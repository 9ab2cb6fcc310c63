"""Prints the tables of docs/rounds.md from the results of its three studies.

    python scripts/round_studies.py endings out/endings
    python scripts/round_studies.py central_privacy out/central_privacy
    python scripts/round_studies.py algorithms out/algorithms

Accuracies are in %. Differences are in points and paired by seed. Their t intervals hold together at 95 % for
all comparisons of a table's column (Bonferroni).
"""

import argparse
from collections.abc import Callable, Sequence

import numpy as np
import xarray as xr
from scipy import stats

import pausejax


def at_time(runs: xr.Dataset, seconds: float) -> np.ndarray:
    """Returns the latest accuracy of each run at a simulated time, [runs]; NaN before the first
    evaluation."""
    known = runs["eval_elapsed"].values <= seconds
    last = known.sum(axis=1) - 1
    accuracy = runs["test_accuracy"].values[np.arange(len(last)), np.maximum(last, 0)]
    return np.where(last >= 0, 100 * accuracy, np.nan)


def at_round(runs: xr.Dataset, number: float) -> np.ndarray:
    """Returns the accuracy of each run after an evaluated round, [runs]."""
    place = int(np.flatnonzero(runs["eval_round"].values == number)[0])
    return 100 * runs["test_accuracy"].values[:, place]


def select(result: xr.Dataset, **where: object) -> xr.Dataset:
    """Returns the runs that have some values, sorted by seed."""
    keep = np.ones(result.sizes["run"], bool)
    for name, value in where.items():
        keep &= result[name].values == value
    runs = result.isel(run=np.flatnonzero(keep))
    return runs.isel(run=np.argsort(runs["seed"].values))


def interval(difference: np.ndarray, comparisons: int) -> str:
    """Formats the mean of paired differences and the half-width of its interval."""
    count = len(difference)
    width = stats.t.ppf(1 - 0.025 / comparisons, count - 1) * difference.std(ddof=1) / np.sqrt(count)
    return f"{difference.mean():+.1f} ± {width:.1f}"


def table(
    result: xr.Dataset,
    groups: Sequence[dict[str, object]],
    lines: Sequence[dict[str, object]],
    points: Sequence[float],
    measure: Callable[[xr.Dataset, float], np.ndarray],
) -> None:
    """Prints the accuracy of every row, and its difference from the first row of its group."""
    comparisons = len(groups) * (len(lines) - 1)
    for group in groups:
        base = select(result, **group, **lines[0])
        for line in lines:
            runs = select(result, **group, **line)
            cells = []
            for point in points:
                values = measure(runs, point)
                cell = f"{values.mean():.1f}"
                if line is not lines[0]:
                    cell += f" ({interval(values - measure(base, point), comparisons)})"
                cells.append(cell)
            diverged = int((runs["diverged_round"].values > 0).sum())
            leakage = np.nanmax(runs["max_leakage"].values, axis=1).mean()
            name = ", ".join(str(value) for value in (*group.values(), *line.values()))
            print(f"{name} | {' | '.join(cells)} | leakage {leakage:.1f} | diverged {diverged}")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("study", choices=("endings", "central_privacy", "algorithms"))
    parser.add_argument("folder")
    asked = parser.parse_args()
    result = pausejax.open(asked.folder).load()
    policies = [{"policy": name} for name in ("random", "pause", "value_per_second", "fastest")]
    if asked.study == "endings":
        endings = [{"ending": name} for name in ("all", "deadline", "first", "buffered")]
        table(result, endings, policies, (20.0, 40.0, 60.0), at_time)
    elif asked.study == "central_privacy":
        table(result, [{}], policies, (10.0, 20.0, 30.0), at_time)
    else:
        algorithms = [{"federated_algorithm": name} for name in ("fedavg", "fedprox", "scaffold", "feddyn")]
        rates = sorted(set(result["learning_rate"].values.tolist()))
        groups = [{"policy": name, "learning_rate": rate} for name in ("random", "pause") for rate in rates]
        table(result, groups, algorithms, (20, 50, 200), at_round)


if __name__ == "__main__":
    main()
