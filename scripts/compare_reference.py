"""Compares results with the logged curves of the paper's own code, and tests the paper's order of policies.

    python scripts/compare_reference.py DIR [DIR ...] --scenario mnist_mlp_k30_m5 [--picture FILE.png]
        [--reference ../shared/reference/curves.csv.gz] [--times 40 80 120 150] [--rounds 50 100 300]
        [--ledger DIR]

Prints Markdown. Accuracies are means over the last 10 rounds, in %. The reference has one seed. It is
"within" if it lies in the 95 % prediction interval of one more run of ours, after rounding to one digit.
Differences between policies are paired by seed, because runs of one seed have the same network. They have 95
% t intervals.
"""

import argparse
import dataclasses
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

import numpy as np
import pandas as pd
import xarray as xr
from curves_at import accuracy_at, plus_minus
from scipy import stats

import pausejax
from pausejax.analysis.mean_curves import smooth
from pausejax.clients.variables import METRICS
from pausejax.plotting.curves import curves
from pausejax.plotting.data import Axis, Series
from pausejax.plotting.grid import Cell, Grid, Line, lines

WINDOW = 10
"""Rounds over which accuracies are averaged, as in the paper."""

MIDDLE = 100
"""Number of the round in the middle of a run at which curves are compared."""

ORDERING = (
    ("PAUSE", "SA-PAUSE"),
    ("PAUSE", "random"),
    ("PAUSE", "clustered by size"),
    ("PAUSE", "clustered by similarity"),
    ("PAUSE", "FedAvg, private"),
    ("SA-PAUSE", "random"),
    ("SA-PAUSE", "clustered by size"),
    ("SA-PAUSE", "clustered by similarity"),
    ("SA-PAUSE", "FedAvg, private"),
    ("random", "fastest"),
    ("random", "FedAvg, private"),
    ("clustered by size", "fastest"),
    ("clustered by size", "FedAvg, private"),
)
"""The paper's claims, as pairs of labels: the first policy is not worse than the second."""


def load(directories: list[str]) -> dict[str, xr.Dataset]:
    """Returns the runs of each policy by label, sorted by seed, with smoothed accuracies."""
    found = {}
    for directory in directories:
        for line in lines(pausejax.open(directory)):
            runs = line.runs.sortby("seed").load()
            every = int(runs["eval_round"][0])
            smoothed = smooth(runs["test_accuracy"].values, max(1, WINDOW // every))
            found[line.label] = runs.assign(test_accuracy=(("run", "eval"), smoothed))
    return found


def with_ledger(found: dict[str, xr.Dataset], directory: str) -> dict[str, xr.Dataset]:
    """Returns the same runs with the leakages of another study that selects the same cohorts.

    If a study sends statistics without noise, its leakage is infinite. The paper's code does not count these
    statistics. Its leakage is that of the same cohorts in a study that sends everything with noise.
    """
    ledger = {line.label: line.runs for line in lines(pausejax.open(directory))}
    changed = {}
    for label in found.keys() & ledger.keys():
        runs, kept = found[label], ledger[label].sortby("seed").load()
        kept = kept.isel(run=np.isin(kept["seed"].values, runs["seed"].values))
        if not np.array_equal(kept["selected"].values, runs["selected"].values):
            raise SystemExit(f"--ledger {directory}: {label}: must select the same clients as the results")
        changed[label] = runs.assign(max_leakage=(("run", "round"), kept["max_leakage"].values))
    return found | changed


def reference_curves(path: Path, scenario: str) -> dict[str, pd.DataFrame]:
    """Returns the logged curves of a scenario by policy, with smoothed accuracies.

    Raises:
      SystemExit: the file has no such scenario.
    """
    logged = pd.read_csv(path)
    logged = logged[logged["scenario"] == scenario]
    if logged.empty:
        raise SystemExit(f"--scenario {scenario}: {path} has no such scenario")
    return {
        policy: rows.assign(test_accuracy=smooth(rows["test_accuracy"].to_numpy(), WINDOW))
        for policy, rows in logged.groupby("policy")
    }


def name_in_reference(runs: xr.Dataset) -> str:
    algorithm = str(runs["algorithm"].values[0])
    return algorithm if runs["private"].values.all() else f"{algorithm}_no_privacy"


def table(head: list[str], rows: list[list[str]]) -> None:
    print("| " + " | ".join(head) + " |")
    print("| --- " * len(head) + "|")
    for row in rows:
        print("| " + " | ".join(row) + " |")
    print()


def prediction(samples: np.ndarray) -> tuple[float, float]:
    """Computes the 95 % prediction interval of one more run, for normally distributed runs."""
    count = len(samples)
    half = stats.t.ppf(0.975, count - 1) * samples.std(ddof=1) * np.sqrt(1 + 1 / count)
    # If all seeds have one value, such as the leakage of the fastest clients, the width would be 0.
    half = max(half, 0.05)
    return samples.mean() - half, samples.mean() + half


def shown(samples: np.ndarray, digits: int = 1) -> str:
    return f"{samples.mean():.{digits}f} ± {samples.std(ddof=1):.{digits}f}"


def against_reference(found: dict[str, xr.Dataset], logged: dict[str, pd.DataFrame], scenario: str) -> None:
    """Prints accuracy, simulated time and leakage of the logged policies, in the middle and at the end of a
    run."""
    rows = []
    for label, runs in found.items():
        theirs = logged.get(name_in_reference(runs))
        if theirs is None:
            continue
        common = np.intersect1d(runs["eval_round"].values, theirs["round"].to_numpy())
        for last in dict.fromkeys((common[common <= MIDDLE][-1], common[-1])):
            at = int(np.flatnonzero(runs["eval_round"].values == last)[0])
            row = theirs[theirs["round"] == last].iloc[0]
            pairs = (
                (100 * runs["test_accuracy"].values[:, at], 100 * row["test_accuracy"]),
                (runs["elapsed"].values[:, last - 1], row["elapsed"]),
                (runs["max_leakage"].values[:, last - 1], row["max_leakage"]),
            )
            rows.append([label, str(last), *(cell for pair in pairs for cell in beside(*pair))])
    seeds = " or ".join(sorted({str(runs.sizes["run"]) for runs in found.values()}))
    print(f"Ours (mean ± deviation over {seeds} seeds) and the reference's one run, {scenario}:\n")
    head = ["policy", "round", "accuracy", "reference", "within", "time, s", "reference", "within"]
    table([*head, "leakage", "reference", "within"], rows)


def beside(samples: np.ndarray, value: float) -> list[str]:
    """Returns our mean and deviation, the reference's value, and whether that value is in our prediction
    interval."""
    if not np.isfinite(samples).all():
        return ["∞", f"{value:.1f}", "–"]
    samples = samples.astype(np.float64)
    if len(samples) < 3:
        return [", ".join(f"{sample:.1f}" for sample in samples), f"{value:.1f}", "–"]
    low, high = prediction(samples)
    return [shown(samples), f"{value:.1f}", "yes" if low <= value <= high else "**no**"]


def ordering(found: dict[str, xr.Dataset], times: list[float], rounds: list[int]) -> None:
    """Prints accuracy at equal simulated times and leakage after equal rounds, and then paired
    differences."""
    rows = []
    for label, runs in found.items():
        accuracy = [interval(100 * accuracy_at(runs, time)) for time in times]
        leakage = [
            interval(runs["max_leakage"].values[:, n - 1]) if n <= runs.sizes["round"] else "–"
            for n in rounds
        ]
        rows.append([label, *accuracy, *leakage])
    head = [f"accuracy at {time:g} s" for time in times] + [f"leakage, round {n}" for n in rounds]
    print("Mean ± 95 % interval at equal simulated times (after its last round, a policy keeps its value):\n")
    table(["policy", *head], rows)
    rows = []
    for better, worse in ORDERING:
        if better not in found or worse not in found:
            continue
        left, right = found[better], found[worse]
        seeds = np.intersect1d(left["seed"].values, right["seed"].values)
        left, right = (runs.isel(run=np.isin(runs["seed"].values, seeds)) for runs in (left, right))
        gains = [100 * (accuracy_at(left, time) - accuracy_at(right, time)) for time in times]
        longest = min(left.sizes["round"], right.sizes["round"])
        extra = [
            left["max_leakage"].values[:, n - 1] - right["max_leakage"].values[:, n - 1]
            if n <= longest
            else None
            for n in rounds
        ]
        differences = [interval(gain, "+") for gain in gains]
        leaks = ["–" if gap is None else interval(gap, "+") for gap in extra]
        rows.append([f"{better} − {worse}", str(len(seeds)), *differences, *leaks])
    print("Paired differences, mean ± 95 % interval (accuracy in points):\n")
    table(["difference", "seeds", *head], rows)


def interval(samples: np.ndarray, sign: str = "") -> str:
    if not np.isfinite(samples).all():
        return "∞"
    return plus_minus(samples, f"{sign}.1f")


def draw(found: dict[str, xr.Dataset], logged: dict[str, pd.DataFrame], path: Path) -> None:
    """Draws our means over seeds with bands and the reference against time, with a panel for each policy."""
    cells = tuple(Cell(label, (Line("ours, mean over seeds", label, runs),)) for label, runs in found.items())
    metric = METRICS["test_accuracy"]
    chart = curves(Grid(cells, min(len(cells), 4)), metric, "time", y=Axis(metric.axis_label, zero=True))
    panels = []
    for panel, runs in zip(chart.panels, found.values(), strict=True):
        series = panel.series
        if (theirs := logged.get(name_in_reference(runs))) is not None:
            x, y = (theirs[name].to_numpy(np.float64) for name in ("elapsed", "test_accuracy"))
            series = (*series, Series("the paper's code, one seed", x, 100 * y, style=1))
        panels.append(dataclasses.replace(panel, series=series))
    dataclasses.replace(chart, panels=tuple(panels)).save(path)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("directories", nargs="+", metavar="DIR", help="results of `pausejax run`")
    parser.add_argument("--scenario", required=True)
    here = Path(__file__).resolve().parents[2]
    parser.add_argument("--reference", type=Path, default=here / "shared" / "reference" / "curves.csv.gz")
    parser.add_argument("--times", type=float, nargs="+", default=[40, 80, 120, 150])
    parser.add_argument("--rounds", type=int, nargs="+", default=[50, 100, 300])
    parser.add_argument("--picture", type=Path)
    parser.add_argument("--ledger", metavar="DIR", help="a study of the same cohorts, for its leakages")
    options = parser.parse_args()
    found = load(options.directories)
    if options.ledger:
        found = with_ledger(found, options.ledger)
    logged = reference_curves(options.reference, options.scenario)
    against_reference(found, logged, options.scenario)
    ordering(found, options.times, options.rounds)
    if options.picture:
        draw(found, logged, options.picture)


if __name__ == "__main__":
    main()
