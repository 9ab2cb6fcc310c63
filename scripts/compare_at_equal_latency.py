"""Paired comparison of policies on accuracy at equal simulated time and on leakage at equal rounds.

    python scripts/compare_at_equal_latency.py DIR --of PAUSE --times 25 50 75 100

Differences are taken seed by seed (the runs of a seed meet the same network), with 95 % t intervals.
"""

import argparse

import numpy as np

import pausejax
from pausejax.report.statistics import accuracy_at, band, lines


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("directory")
    parser.add_argument(
        "--of", required=True, metavar="LABEL", help="the policy that the others are held against"
    )
    parser.add_argument("--times", type=float, nargs="+", required=True, metavar="SECONDS")
    options = parser.parse_args()
    found = {line.label: line.runs.sortby("seed").load() for line in lines(pausejax.open(options.directory))}
    own = found.pop(options.of)
    print(f"accuracy of {options.of} minus the other's, percentage points, at equal simulated time")
    print("| policy | " + " | ".join(f"{time:g} s" for time in options.times) + " |")
    print("| --- " * (len(options.times) + 1) + "|")
    for label, runs in found.items():
        cells = []
        for time in options.times:
            mean, half = band(100 * (accuracy_at(own, time) - accuracy_at(runs, time)))
            cells.append(f"{float(mean):+.1f} ± {float(half):.1f}")
        print(f"| {label} | " + " | ".join(cells) + " |")
    rounds = [20, 50, 100, own.sizes["round"]]
    print(f"\nmaximum leakage of {options.of} minus the other's, at equal rounds")
    print("| policy | " + " | ".join(f"round {n}" for n in rounds) + " |")
    print("| --- " * (len(rounds) + 1) + "|")
    for label, runs in found.items():
        if np.isfinite(runs["max_leakage"].values).all():
            gaps = [
                band(own["max_leakage"].values[:, n - 1] - runs["max_leakage"].values[:, n - 1])
                for n in rounds
            ]
            print(f"| {label} | " + " | ".join(f"{float(m):+.1f} ± {float(h):.1f}" for m, h in gaps) + " |")


if __name__ == "__main__":
    main()
