"""Times ensemble studies, and the same rounds in plain NumPy.

python scripts/bench/ensemble.py [--runs 1000] [--rounds 5000] [--policies efl_fg fedboost ...]

Prints CPU seconds and wall seconds of `simulate` after a call that compiles. The runs are seeds × η × ξ × B,
with K = 22 and the diabetes pool. Also prints the CPU time per run and round of a NumPy loop that only does
EFL-FG.
"""

import argparse
import os
import time

import jax
import numpy as np

from pausejax.ensemble import Runs, fit_pool, load_regression, simulate

NUM_CLIENTS = 100
RUNS_PER_CORE = 128


def grid(count):
    """Returns at least `count` runs, seeds × η × ξ × B, with 20 seeds."""
    settings = -(-count // 20)
    rng = np.random.default_rng(0)
    points = Runs(
        seed=np.tile(np.arange(20), settings),
        learning_rate=np.repeat(10 ** rng.uniform(-3, -0.5, settings), 20),
        exploration_rate=np.repeat(10 ** rng.uniform(-2, -0.5, settings), 20),
        budget=np.repeat(rng.choice([1.0, 2.0, 3.0, 5.0], settings), 20),
        uplink=np.full(20 * settings, 50),
    )
    return Runs(*(field[:count] if np.ndim(field) else field for field in points))


def numpy_graph(log_w, previous, sizes, budget):
    count = len(sizes)
    graph = np.eye(count, dtype=bool)
    for k in range(count):
        before, row, used = previous[k], graph[k], sizes[k]
        while True:
            missing = before & ~row
            reference = log_w[missing].max() if missing.any() else 0.0
            weight = np.exp(np.minimum(log_w - reference, 500))
            spare = weight[missing].sum() - weight[row & ~before].sum()
            keeps = before if not (row & ~before).any() else np.zeros(count, bool)
            joining = ~row & (used + sizes <= budget) & (keeps | (missing.any() & (weight <= spare)))
            if not joining.any():
                break
            chosen = np.argmax(np.where(joining, log_w - np.log(used + sizes), -np.inf))
            row[chosen] = True
            used += sizes[chosen]
    return graph


def numpy_dominating(graph):
    uncovered, members = np.ones(len(graph), bool), np.zeros(len(graph), bool)
    while uncovered.any():
        chosen = np.argmax((graph & uncovered).sum(axis=1))
        members[chosen] = True
        uncovered &= ~graph[chosen]
    return members


def numpy_run(pool, seed, rate, exploration, budget, uplink, rounds):
    """Plays one run of EFL-FG in NumPy, and returns its mean squared error."""
    rng = np.random.default_rng(seed)
    predictions, targets = pool.predictions.astype(float), pool.targets.astype(float)
    sizes, count = pool.parameters.astype(int), len(pool.parameters)
    limit = int(budget * sizes.max())
    log_w, log_u = np.zeros(count), np.zeros(count)
    graph, order, error = np.ones((count, count), bool), rng.permutation(len(targets)), 0.0
    for t in range(rounds):
        graph = numpy_graph(log_w, graph, sizes, limit)
        dominating = numpy_dominating(graph)
        u = np.exp(log_u - log_u.max())
        p = (1 - exploration) * u / u.sum() + exploration * dominating / dominating.sum()
        node = rng.choice(count, p=p)
        sent = graph[node]
        w = np.where(sent, np.exp(log_w - log_w[sent].max()), 0)
        clients = rng.permutation(NUM_CLIENTS)[: int(uplink // (sent.sum() + 1))]
        rows = order[(t * NUM_CLIENTS + clients) % len(targets)]
        residual = predictions[rows] @ (w / w.sum()) - targets[rows]
        loss = ((predictions[rows] - targets[rows, None]) ** 2).sum(axis=0)
        log_w -= rate * np.where(sent, loss / (graph.T @ p), 0)
        log_u[node] -= rate * (residual**2).sum() / p[node]
        error += (residual**2).mean()
    return error / rounds


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--runs", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=5000)
    parser.add_argument("--policies", nargs="+", default=["efl_fg"])
    options = parser.parse_args()
    jax.config.update("jax_num_cpu_devices", os.cpu_count())
    pool, runs = fit_pool(load_regression("diabetes")), grid(options.runs)
    settings = list(zip(*runs[:5], strict=True))[:: max(options.runs // 8, 1)]
    begun = time.process_time()
    for setting in settings:
        numpy_run(pool, *setting, 100)
    plain = (time.process_time() - begun) / 100 / len(settings)
    print(f"NumPy: {1e6 * plain:.0f} µs of CPU per run and round")

    for policy in options.policies:
        keywords = {
            "rounds": options.rounds,
            "num_clients": NUM_CLIENTS,
            "record_every": options.rounds // 10,
        }
        few = Runs(*(field[: RUNS_PER_CORE * os.cpu_count()] if np.ndim(field) else field for field in runs))
        for label, some in (("with compilation", few), ("compiled", runs)):
            count, wall, cpu = len(some.seed), time.perf_counter(), time.process_time()
            simulate(pool, policy, some, **keywords)
            wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
            print(
                f"{policy}, {label}, {count} runs of {options.rounds} rounds: {cpu:.0f} CPU s, {wall:.0f} s"
            )
        each = cpu / count / options.rounds
        ratio = f", {plain / each:.0f} times less than NumPy" if policy == "efl_fg" else ""
        print(f"{policy}: {1e6 * each:.1f} µs of CPU per run and round{ratio}")


if __name__ == "__main__":
    main()
