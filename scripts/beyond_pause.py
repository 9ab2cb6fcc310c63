"""Prints the tables and draws the picture of docs/beyond-pause.md: value per second against PAUSE.

    python scripts/beyond_pause.py table out/digits out/skewed out/mnist --picture beyond_pause.png
    python scripts/beyond_pause.py regret
    python scripts/beyond_pause.py tried

Differences are paired by seed, because runs with one seed have the same network. They have 95 % t intervals.
"""

import argparse
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

import jax
import jax.numpy as jnp
import numpy as np
import xarray as xr
from curves_at import accuracy_at, marked, plus_minus

import pausejax
from pausejax.network.law import expected_reward
from pausejax.network.laws import two_speed
from pausejax.plotting.chart import Axis, Chart, Panel
from pausejax.plotting.curves import Samples, mean_series
from pausejax.plotting.grid import Line, lines
from pausejax.selection import best_rate

INDICES = ("variance", "range", "thompson")


def figures(line: Line, times: Sequence[float]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Returns accuracy (%), maximum leakage and number of rounds at simulated times, [seeds, times] each.

    Values are NaN after the end of a run.
    """
    runs = line.runs.sortby("seed").load()
    elapsed, leakage = runs["elapsed"].values, runs["max_leakage"].values
    rounds = np.stack([(elapsed <= time).sum(axis=1) for time in times], axis=1)
    there = np.take_along_axis(leakage, np.maximum(rounds - 1, 0), axis=1)
    accuracy = np.stack([100 * accuracy_at(runs, time) for time in times], axis=1)
    reached = np.nanmax(elapsed, axis=1)[:, None] >= np.asarray(times)
    return tuple(np.where(reached, x, np.nan) for x in (accuracy, there, rounds))


def rows(result: xr.Dataset, times: Sequence[float], of: str) -> list[tuple[str, list[str]]]:
    """Returns a row of cells for each policy: accuracy, leakage and rounds at each time, and the differences
    from one policy."""
    found = {line.label: figures(line, times) for line in lines(result)}
    own_accuracy, own_leakage, _ = found[of]
    table = []
    for label, (accuracy, leakage, rounds) in found.items():
        cells = []
        for at in range(len(times)):
            if not np.isfinite(accuracy[:, at]).all():
                cells.append("–")
                continue
            told = f"{accuracy[:, at].mean():.1f} / {leakage[:, at].mean():.1f}"
            if label != of:
                gain = plus_minus(accuracy[:, at] - own_accuracy[:, at], "+.1f")
                less = plus_minus(leakage[:, at] - own_leakage[:, at], "+.1f")
                told += f" ({gain}, {less})"
            cells.append(f"{told} [{rounds[:, at].mean():.0f}]")
        table.append((label, cells))
    return table


def draw(directories: Sequence[str], times: Sequence[float], path: str) -> None:
    """Draws accuracy against leakage at each time, with a panel for each study and a line for each policy."""
    panels, styles = [], {}
    for directory in directories:
        result = pausejax.open(directory)
        name = str(result.attrs.get("name", directory)).removeprefix("beyond PAUSE: ")
        series = []
        for line in lines(result):
            accuracy, leakage, _ = figures(line, times)
            found = Samples(leakage.mean(axis=0), accuracy, np.arange(len(accuracy)))
            style = styles.setdefault(line.label, len(styles))
            series += marked(mean_series(line.label, found, style))
        y = Axis(f"test accuracy on {name} (%)")
        panels.append(Panel(Axis("maximum leakage"), y, tuple(series)))
    caption = "Accuracy against leakage at equal simulated times: means over seeds with 95 % t intervals."
    Chart("beyond_pause", caption, tuple(panels), columns=len(panels)).save(path)


@partial(jax.jit, static_argnames=("price", "decay"))
def value_regret(selected: jax.Array, mean_reward: jax.Array, price: float, decay: float) -> jax.Array:
    """Returns the regret of each round against the best rate on the policy's own history, [runs, rounds].

    The rate is Σ value · min μ with μ = E[τ_min / τ]. The values are those of the policy, for equal data.

    Args:
      selected: the clients of each round, int [runs, rounds, m], from 0 to K - 1.
      mean_reward: μ, float32 [K].
      price: c.
      decay: η.
    """
    m = selected.shape[2]

    def step(counts: jax.Array, members: jax.Array) -> tuple[jax.Array, jax.Array]:
        spent = (counts - jnp.min(counts)).astype(jnp.float32)
        value = jnp.exp(-price * decay * spent)
        own = jnp.min(mean_reward[members]) * jnp.sum(value[members])
        return counts.at[members].add(1), best_rate(mean_reward, value, m).value - own

    def run(selected: jax.Array) -> jax.Array:
        return jax.lax.scan(step, jnp.zeros(mean_reward.shape, jnp.int32), selected)[1]

    return jax.vmap(run)(selected)


def bound(num_clients: int, m: int, rounds: np.ndarray) -> np.ndarray:
    """Computes the bound of docs/beyond-pause.md on the regret of the index "range" with optimism 1."""
    leading = 4 * np.sqrt((m + 1) * m * num_clients * rounds * np.log(np.maximum(rounds, 1)))
    return m * (num_clients + leading + 2.41 * num_clients)


def regret(rounds: int, seeds: int, price: float) -> list[tuple[str, list[str]]]:
    """Returns a row of cells for each index: cumulative regret after a tenth, a third and all of the
    rounds."""
    ends = [rounds // 10, rounds // 3, rounds]
    table = []
    for index in INDICES:
        result = pausejax.simulate(
            {"name": "value_per_second", "speed_index": index, "price": price},
            mode="bandit",
            num_clients=30,
            clients_per_round=5,
            min_latency=0.05,
            budget_decay=0.04,
            rounds=rounds,
            seeds=seeds,
        )
        law = two_speed(num_clients=30, min_latency=0.05)
        losses = value_regret(result["selected"].values, expected_reward(law, 0.05), price, 0.04)
        totals = np.cumsum(np.asarray(losses), axis=1, dtype=np.float64)
        table.append((index, [plus_minus(totals[:, n - 1], ".0f", ".0f") for n in ends]))
    table.append(("bound for range", [f"{x:.0f}" for x in bound(30, 5, np.array(ends))]))
    return table


def tried(times: Sequence[float], seeds: int) -> dict[str, list[tuple[str, list[str]]]]:
    """Returns the rows of the rejected variants by data set, with differences from the first variant."""
    import beyond_parts  # noqa: F401, registers the policies

    own = {"name": "value_per_second", "label": "value per second, c = 50"}
    equal = [
        own,
        {"name": "weighted_by_precision", "label": "weights by precision"},
        {**own, "price": 20.0, "label": "value per second, c = 20"},
        {"name": "told_speeds", "price": 20.0, "label": "told the expected latencies, c = 20"},
    ]
    skewed = [
        own,
        {"name": "weighted_by_precision", "label": "weights by precision"},
        {**own, "share_exponent": 0.0, "label": "s = 0"},
    ]
    data = {"partition": "dirichlet_label", "concentration": 0.3}
    found = {}
    for name, policies, more in (("equal shares", equal, {}), ("few labels each", skewed, data)):
        result = pausejax.simulate(
            policies,
            seeds=seeds,
            rounds=400,
            eval_every=5,
            stop_at_latency=max(times),
            num_clients=30,
            clients_per_round=5,
            model="mlp",
            privacy_budget=100.0,
            budget_decay=0.04,
            sensitivity=0.012,
            **more,
        )
        found[name] = rows(result, times, own["label"])
    return found


def shown(head: Sequence[str], table: Sequence[tuple[str, list[str]]]) -> str:
    """Returns the table in Markdown."""
    lines = [f"| {' | '.join(('policy', *head))} |", "| --- " * (len(head) + 1) + "|"]
    return "\n".join([*lines, *(f"| {label} | {' | '.join(cells)} |" for label, cells in table)])


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(dest="command", required=True)
    compare = commands.add_parser("table", help="accuracy / leakage (leads) [rounds]")
    compare.add_argument("directories", nargs="+")
    compare.add_argument("--times", type=float, nargs="+", default=[30.0, 50.0, 80.0], metavar="SECONDS")
    compare.add_argument(
        "--of",
        default="PAUSE",
        metavar="LABEL",
        help="policy that is subtracted from the others",
    )
    compare.add_argument("--picture", metavar="PNG")
    bandits = commands.add_parser("regret", help="against the best rate on a policy's own history")
    bandits.add_argument("--rounds", type=int, default=1500)
    bandits.add_argument("--seeds", type=int, default=20)
    bandits.add_argument("--price", type=float, default=10.0)
    variants = commands.add_parser("tried", help="variants on digits: leads over c = 50")
    variants.add_argument("--times", type=float, nargs="+", default=[30.0, 50.0, 80.0], metavar="SECONDS")
    variants.add_argument("--seeds", type=int, default=20)
    options = parser.parse_args()
    if options.command == "tried":
        for name, table in tried(options.times, options.seeds).items():
            print(f"\n{name}\n\n{shown([f'{t:g} s' for t in options.times], table)}")
        return
    if options.command == "regret":
        ends = [f"{n} rounds" for n in (options.rounds // 10, options.rounds // 3, options.rounds)]
        print(shown(ends, regret(options.rounds, options.seeds, options.price)))
        return
    for directory in options.directories:
        print(f"\n{directory}\n")
        print(
            shown(
                [f"{t:g} s" for t in options.times], rows(pausejax.open(directory), options.times, options.of)
            )
        )
    if options.picture:
        draw(options.directories, options.times, options.picture)


if __name__ == "__main__":
    main()
