"""Measures the cost of exact selection, and simulates its rounds, for comparison with the paper's own code.

    python scripts/bench/selection.py --out DIR [--quick]

Times are CPU seconds of all threads of the process, the least of five repeats, without compilation. DIR gets
`speed.csv`, `scaling.csv`, `selection.png` and `selection.json`. The JSON file has both tables, the fitted
slopes, the simulated rounds and the machine.
"""

import argparse
import csv
import json
import math
import platform
import time
from functools import partial
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

from pausejax import bandit, network, regret
from pausejax.plotting.chart import Axis, Chart, Panel, Series
from pausejax.policies.base import Clients, Feedback, View
from pausejax.policies.pause import pause
from pausejax.selection import best_set, brute_force

MIN_LATENCY = 0.05
REFERENCE = {(30, 5): ("brute force", 0.33), (300, 15): ("annealing", 77.0), (1000, 50): ("annealing", 398.0)}
"""Method and CPU seconds of one selection by the paper's own code on a similar machine, by (K, m)."""


def middle_of_a_run(num_clients, m, seed, round=300):
    """Returns ucb (13), g (8) and p (7), [K] each, of a run that has favoured the faster half of the
    clients."""
    rng = np.random.default_rng(seed)
    favour = np.where(np.arange(num_clients) < num_clients // 2, 3.0, 1.0) * rng.uniform(
        0.7, 1.3, num_clients
    )
    counts = jnp.asarray(rng.poisson(favour / favour.sum() * m * round) + 1, jnp.int32)
    mean = jnp.asarray(np.clip(0.3 * favour + rng.normal(0, 0.02, num_clients), 0, 1), jnp.float32)
    g = bandit.generalization(counts, round, jnp.full(num_clients, 1 / num_clients), m, 2.0)
    return bandit.ucb(mean, counts, round, m), g, bandit.privacy_reward(counts, 0.04)


def terms(num_clients, m, seed):
    """Returns ucb (13) and the score of (14), [K] each, of such a run."""
    ucb, g, p = middle_of_a_run(num_clients, m, seed)
    return ucb, bandit.score(g, p, m, generalization_weight=100.0, privacy_weight=5.0)


def cpu_seconds(function, *inputs, at_least=0.05):
    """Returns the least CPU seconds of a call, after a call that compiles; short calls are timed in
    groups."""
    jax.block_until_ready(function(*inputs))
    start = time.process_time()
    jax.block_until_ready(function(*inputs))
    once = max(time.process_time() - start, 1e-6)
    calls = max(1, math.ceil(at_least / once))
    spent = [once]
    for _ in range(5 if once < 1 else 1):
        start = time.process_time()
        for _ in range(calls):
            jax.block_until_ready(function(*inputs))
        spent.append((time.process_time() - start) / calls)
    return min(spent)


def batch(num_clients, m, runs):
    """Returns the terms of some runs, [runs, K] each; after 64 runs they repeat."""
    different = [terms(num_clients, m, seed) for seed in range(min(runs, 64))]
    return [jnp.tile(jnp.stack(x), (-(-runs // 64), 1))[:runs] for x in zip(*different, strict=True)]


def measure(choose, num_clients, m, runs):
    """Returns the CPU seconds of a selection in a batch of runs."""
    call = partial(choose, m=m)
    return cpu_seconds(jax.jit(jax.vmap(call)), *batch(num_clients, m, runs)) / runs


def speed(quick):
    sizes = [(30, 5), (300, 15)] if quick else [(30, 5), (300, 15), (1000, 50), (3000, 150)]
    jobs = [(best_set, *size, runs) for size in sizes for runs in (1, 64, 1024)]
    jobs += [] if quick else [(best_set, 1_000_000, 1000, 1)]
    jobs += [(brute_force, 30, 5, runs) for runs in (1, 64)]
    rows = []
    for choose, num_clients, m, runs in jobs:
        seconds = measure(choose, num_clients, m, runs)
        theirs, reference = REFERENCE.get((num_clients, m), ("", np.nan))
        row = {"selector": choose.__name__, "clients": num_clients, "per_round": m, "runs": runs}
        row |= {"cpu_seconds": seconds, "reference": theirs, "times_faster": reference / seconds}
        print({k: f"{v:.3g}" if isinstance(v, float) else v for k, v in row.items()}, flush=True)
        rows.append(row)
    return rows


def scaling(quick):
    """Returns rows of the cost of one selection for several K, with m = K / 6 as in the paper's (30, 5)."""
    exact = [30, 100, 300, 1000, 3000] + ([] if quick else [10_000, 30_000, 100_000])
    brute = [12, 18, 24, 30, 36] + ([] if quick else [42])
    rows = []
    for choose, sizes in ((best_set, exact), (brute_force, brute)):
        for num_clients in sizes:
            seconds = measure(choose, num_clients, num_clients // 6, 1)
            row = {"selector": choose.__name__, "clients": num_clients, "per_round": num_clients // 6}
            rows.append(row | {"cpu_seconds": seconds})
            print(rows[-1], flush=True)
    return rows


def play(num_clients, m, rounds, *, gain, privacy_weight, shuffled=False, with_oracle=False):
    """Returns a function from seeds to the round latencies and regrets, [runs, rounds], of PAUSE without
    training.

    Latencies are the paper's, and the clock is "reference". The paper numbers its clients from the fastest to
    the slowest. So ties between unexplored clients favour fast clients. `shuffled` numbers clients at random.
    """
    ordered = network.two_speed(num_clients=num_clients, min_latency=MIN_LATENCY)
    share = jnp.full(num_clients, 1 / num_clients)
    objective = bandit.Objective(privacy_weight=privacy_weight, exploitation_gain=gain, clock="reference")
    policy = pause(num_clients=num_clients, clients_per_round=m, objective=objective)

    def one_round(law, mu, key, carry, round):
        state, oracle_counts = carry
        latency = law.sample(jax.random.fold_in(key, round))
        view = View(round, latency, lambda clients: jnp.zeros(clients.shape))
        members = policy.select(None, state, view).members
        speed = MIN_LATENCY / latency
        lost = jnp.float32(0)
        if with_oracle:
            oracle_counts, regrets = regret.step(
                oracle_counts,
                state.bandit.counts,
                members,
                bandit.time_of_terms(round, "reference"),
                mean_reward=mu,
                latency_reward=speed,
                data_share=share,
                clients_per_round=m,
                objective=objective,
            )
            lost = regrets.regret
        nothing = jnp.zeros(m)
        feedback = Feedback(members, latency[members], speed[members], nothing, nothing, nothing[:, None])
        return (policy.update(state, view, feedback), oracle_counts), (jnp.max(latency[members]), lost)

    def run(seed):
        state = policy.init(None, Clients(share, jnp.ones(num_clients)))
        key = jax.random.key(seed)
        number = jax.random.permutation(key, num_clients) if shuffled else jnp.arange(num_clients)
        law = network.Law(
            lambda key: ordered.sample(key)[number],
            lambda function: network.expectation(ordered, function)[number],
        )
        step = partial(one_round, law, network.expected_reward(law, MIN_LATENCY), key)
        return jax.lax.scan(step, (state, regret.init(num_clients)), jnp.arange(1, rounds + 1))[1]

    return jax.jit(jax.vmap(run))


def games(quick):
    """Returns the simulated seconds of 300 rounds with exact selection, and the speed of a study without
    training."""
    result = {}
    for num_clients, m, gain, privacy_weight in ((30, 5, 1.0, 5.0), (300, 15, 3.0, 2.0)):
        for shuffled in (False, True):
            game = play(num_clients, m, 300, gain=gain, privacy_weight=privacy_weight, shuffled=shuffled)
            seconds = np.asarray(game(jnp.arange(16))[0], np.float64).sum(axis=1)
            name = f"seconds_of_300_rounds_k{num_clients}_m{m}{'_shuffled' if shuffled else ''}"
            result[name] = {"mean": seconds.mean(), "deviation": seconds.std(ddof=1), "runs": len(seconds)}
    runs, rounds = (64, 100) if quick else (256, 300)
    study = play(30, 5, rounds, gain=1.0, privacy_weight=5.0, with_oracle=True)
    spent = cpu_seconds(study, jnp.arange(runs))
    result["bandit_study_k30_m5"] = {"runs": runs, "rounds_times_runs_per_cpu_second": rounds * runs / spent}
    print(json.dumps(result, indent=1), flush=True)
    return result


def slopes(rows):
    """Returns the exponent of K in the cost of `best_set`, and the factor of each client in that of
    `brute_force`."""

    def points(name, least):
        chosen = [row for row in rows if row["selector"] == name and row["clients"] >= least]
        return [np.array([row[key] for row in chosen]) for key in ("clients", "cpu_seconds")]

    clients, seconds = points("best_set", 1000)
    exponent = np.polyfit(np.log(clients), np.log(seconds), 1)[0]
    clients, seconds = points("brute_force", 24)
    factor = np.exp(np.polyfit(clients, np.log(seconds), 1)[0])
    return {"best_set_exponent_from_1000": exponent, "brute_force_factor_per_client_from_24": factor}


def draw(rows, fitted, path):
    """Draws the cost of a selection against K on logarithmic axes."""
    labels = {
        "best_set": f"best_set, slope {fitted['best_set_exponent_from_1000']:.2f} from K = 1000",
        "brute_force": f"brute_force, ×{fitted['brute_force_factor_per_client_from_24']:.2f} per client",
    }
    series = []
    for style, (name, label) in enumerate(labels.items()):
        chosen = [row for row in rows if row["selector"] == name]
        x, y = (np.array([row[key] for row in chosen], float) for key in ("clients", "cpu_seconds"))
        series.append(Series(label, x, y, style=style))
    label = "the paper's code: brute force, and annealing from K = 300"
    x, y = np.array([(k, seconds) for (k, _), (_, seconds) in REFERENCE.items()]).T
    series.append(Series(label, x, y, mark="cross", style=6))
    x, y = Axis("clients K", "log"), Axis("CPU seconds per selection", "log")
    panel = Panel(x, y, tuple(series), title="One selection by (14), m = K / 6")
    Chart("selection", "Cost of one selection against the clients.", (panel,)).save(path, width=5.0)


def write_csv(rows, path):
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(dict.fromkeys(name for row in rows for name in row)))
        writer.writeheader()
        writer.writerows(rows)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, required=True, help="folder for the results")
    parser.add_argument("--quick", action="store_true", help="small sizes only, about half a minute")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    by_size, by_clients = speed(options.quick), scaling(options.quick)
    fitted = slopes(by_clients)
    machine = {"machine": platform.machine(), "backend": jax.default_backend(), "jax": jax.__version__}
    result = {
        "speed": by_size,
        "scaling": by_clients,
        "slopes": fitted,
        "games": games(options.quick),
    } | machine
    write_csv(by_size, options.out / "speed.csv")
    write_csv(by_clients, options.out / "scaling.csv")
    (options.out / "selection.json").write_text(json.dumps(result, indent=1))
    draw(by_clients, fitted, options.out / "selection.png")


if __name__ == "__main__":
    main()
