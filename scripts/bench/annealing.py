"""Measures the cost of annealing: the time of a step in batches, and of a selection against K (Table I).

    python scripts/bench/annealing.py --out DIR [--quick]

Times are CPU seconds of all threads of the process, the least of several repeats, without compilation. DIR
gets `speed.csv`, `scaling.csv`, `brute_force.csv`, `annealing.png` and `annealing.json`. The JSON file has
all tables, the fitted slopes and the machine.
"""

import argparse
import json
import platform
import sys
from functools import partial
from math import comb
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

import jax
import jax.numpy as jnp
import numpy as np
from selection import cpu_seconds, middle_of_a_run, write_csv

from pausejax import bandit, selection
from pausejax.plotting.chart import Axis, Chart, Panel, Series

WEIGHTS = {"generalization_weight": 100.0, "privacy_weight": 5.0}
DIVISOR = 30.0
REFERENCE_SECONDS = {(30, 5): 1.97, (300, 15): 77.0, (1000, 50): 398.0}
"""CPU seconds of one selection of 3,000 steps by the paper's own code, on a similar machine."""
REFERENCE_STEPS = 3_000
SETTINGS = [(30, 5), (300, 15), (1000, 50), (3000, 150)]
FUNCTIONS = {"tailored": selection.anneal, "vanilla": selection.vanilla_anneal}


def speed(runs_of, steps):
    """Returns rows of CPU time per annealing step and run, including the set-up of each selection."""
    rows = []
    for num_clients, m in SETTINGS:
        for runs in runs_of(num_clients):
            batch = [middle_of_a_run(num_clients, m, seed) for seed in range(min(runs, 64))]
            inputs = [jnp.tile(jnp.stack(x), (-(-runs // 64), 1))[:runs] for x in zip(*batch, strict=True)]
            keys = jax.random.split(jax.random.key(0), runs)
            for name, function in FUNCTIONS.items():
                call = partial(function, m=m, steps=steps, temperature_divisor=DIVISOR, **WEIGHTS)
                seconds = cpu_seconds(jax.jit(jax.vmap(call)), keys, *inputs)
                per_step = seconds / steps / runs
                reference = REFERENCE_SECONDS.get((num_clients, m), np.nan) / REFERENCE_STEPS
                faster = reference / per_step if name == "tailored" else np.nan
                rows.append(
                    {
                        "neighbours": name,
                        "clients": num_clients,
                        "per_round": m,
                        "runs": runs,
                        "steps": steps,
                        "microseconds_per_step": per_step * 1e6,
                        "steps_per_second": 1 / per_step,
                        "times_the_reference": faster,
                    }
                )
                print(
                    f"{name:9s} K {num_clients:5d} m {m:4d} runs {runs:5d}  "
                    f"{per_step * 1e6:8.3f} us per step, {faster:10.0f} x reference",
                    flush=True,
                )
    return rows


def neighbourhood_size(values, members):
    """Returns |A| (K - m) + (m - |A|) |U|, the number of neighbours of a set and the paper's cost of a
    step."""
    num_clients, m = len(values[0]), len(members)
    ranks = [np.argsort(np.argsort(np.asarray(x), kind="stable")) for x in values]
    first = {int(members[np.argmin(r[members])]) for r in ranks}
    below = np.zeros(num_clients, bool)
    for r in ranks:
        below |= r < r[members].min()
    return len(first) * (num_clients - m) + (m - len(first)) * int(below.sum())


def scaling(sizes, steps):
    """Returns rows of the cost of one selection, and of the sizes of neighbourhoods, for m = K / 20."""
    rows = []
    for num_clients in sizes:
        m = max(2, num_clients // 20)
        ucb, g, p = middle_of_a_run(num_clients, m, 0)
        score = bandit.score(g, p, m, **WEIGHTS)
        key = jax.random.key(0)
        row = {"clients": num_clients, "per_round": m, "steps": steps}
        for name, function in FUNCTIONS.items():
            for count, label in ((0, "setup"), (steps, "selection")):
                call = partial(function, m=m, steps=count, temperature_divisor=DIVISOR, **WEIGHTS)
                row[f"{name}_{label}_seconds"] = cpu_seconds(jax.jit(call), key, ucb, g, p)
        row["exact_seconds"] = cpu_seconds(jax.jit(partial(selection.best_set, m=m)), ucb, score)
        values = (ucb, p, g)
        rng = np.random.default_rng(0)
        starts = [rng.choice(num_clients, m, replace=False) for _ in range(20)]
        row["vanilla_neighbours"] = m * (num_clients - m)
        row["tailored_neighbours_random_set"] = np.mean([neighbourhood_size(values, s) for s in starts])
        best = np.asarray(selection.best_set(ucb, score, m).members)
        row["tailored_neighbours_best_set"] = neighbourhood_size(values, best)
        rows.append(row)
        print(" ".join(f"{k} {v:.4g}" for k, v in row.items()), flush=True)
    return rows


def brute_force(sizes, m=5):
    """Returns rows of the cost of trying all sets of 5 clients, for small K."""
    rows = []
    for num_clients in sizes:
        ucb, g, p = middle_of_a_run(num_clients, m, 0)
        score = bandit.score(g, p, m, **WEIGHTS)
        seconds = cpu_seconds(jax.jit(partial(selection.brute_force, m=m)), ucb, score)
        rows.append({"clients": num_clients, "sets": comb(num_clients, m), "brute_seconds": seconds})
        print(rows[-1], flush=True)
    return rows


def slopes(rows):
    """Returns the exponent of K in every column, by least squares on logarithms over K >= 300."""
    rows = [row for row in rows if row["clients"] >= 300]
    log_size = np.log([row["clients"] for row in rows])
    columns = [c for c in rows[0] if c.endswith("seconds") or "neighbours" in c]
    fit = {}
    for column in columns:
        if all(row.get(column) for row in rows) and len(rows) > 1:
            fit[column] = float(np.polyfit(log_size, np.log([row[column] for row in rows]), 1)[0])
    return fit


def draw(rows, brute_rows, fit, path):
    """Draws cost and neighbours against K on logarithmic axes, with the slopes in the legend."""
    steps = rows[0]["steps"]
    costs = {
        "vanilla_selection_seconds": f"Vanilla-SA, {steps} steps",
        "tailored_selection_seconds": f"Algorithm 2, {steps} steps",
        "tailored_setup_seconds": "set-up of Algorithm 2 (sorting)",
        "exact_seconds": "exact (best_set)",
        "brute_seconds": "brute force, m = 5",
    }
    sizes = {
        "vanilla_neighbours": "neighbours in Vanilla-SA",
        "tailored_neighbours_best_set": "in Algorithm 2 at the best set",
        "tailored_neighbours_random_set": "in Algorithm 2 at random sets",
    }
    styles = {column: style for style, column in enumerate((*costs, *sizes))}
    panels = []
    for columns, what in ((costs, "CPU seconds per selection"), (sizes, "neighbours of a set")):
        series = []
        for column, label in columns.items():
            slope = f", slope {fit[column]:.2f}" if column in fit else ""
            there = [row for row in (*rows, *brute_rows) if column in row]
            x, y = (np.array([row[name] for row in there], float) for name in ("clients", column))
            series.append(Series(label + slope, x, y, style=styles[column]))
        panels.append(Panel(Axis("clients K (m = K / 20)", "log"), Axis(what, "log"), tuple(series)))
    Chart("annealing", "Cost of one selection against the clients.", tuple(panels), columns=2).save(path)


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, required=True, help="folder for the results")
    parser.add_argument("--quick", action="store_true", help="fewer and smaller settings")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    batches = (1, 64) if options.quick else (1, 64, 1024)
    speed_rows = speed(lambda k: batches if k < 1000 or options.quick else batches[:2], steps=1_000)
    sizes = (30, 100, 300, 1_000) if options.quick else (30, 100, 300, 1_000, 3_000, 10_000, 30_000, 100_000)
    scaling_rows = scaling(sizes, steps=1_000)
    brute_rows = brute_force((10, 20, 30) if options.quick else (10, 15, 20, 30, 40, 50))
    fit = slopes(scaling_rows)
    machine = {
        "jax": jax.__version__,
        "backend": jax.default_backend(),
        "device": jax.devices()[0].device_kind,
        "python": platform.python_version(),
    }
    result = {"machine": machine, "speed": speed_rows, "scaling": scaling_rows, "brute_force": brute_rows}
    result["slopes"] = fit
    (options.out / "annealing.json").write_text(json.dumps(result, indent=2, default=float))
    for name, rows in (("speed", speed_rows), ("scaling", scaling_rows), ("brute_force", brute_rows)):
        write_csv(rows, options.out / f"{name}.csv")
    draw(scaling_rows, brute_rows, fit, options.out / "annealing.png")
    print(json.dumps(fit, indent=2))


if __name__ == "__main__":
    main()
