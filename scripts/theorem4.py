"""Draws the probabilities of Theorem 4, and counts on small networks how often its proof's conditions hold.

    python scripts/theorem4.py --out DIR [--steps 1000000]

Simulates exact PAUSE without training for some rounds. The next decision, (14), is the problem that is
annealed. The picture has three probabilities against the step j, for several values of κ: that V_j is
optimal, that the best set up to step j is optimal, and that the last uphill set is optimal. Lines are exact,
dots are simulated chains. DIR gets `theorem4.png`, `theorem4.csv` and `theorem4.json`. The JSON file also has
a survey of many decisions: Hajek's critical κ, asymmetric edges, failures of Algorithm 3, and the gap of
annealing to the maximum.
"""

import argparse
import csv
import itertools
import json
from functools import partial
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

from pausejax import bandit, network, selection
from pausejax.plotting.chart import Axis, Chart, Panel, Series
from pausejax.selection import chain

SETTINGS = {
    "α 100, γ 5, ζ 1": (100.0, 5.0, 1.0),
    "α 100, γ 2, ζ 3": (100.0, 2.0, 3.0),
    "α 10, γ 1, ζ 1": (10.0, 1.0, 1.0),
    "α 1, γ 0.5, ζ 1": (1.0, 0.5, 1.0),
}
"""Weights (α, γ, ζ) by name. The first are those of the paper's runs at K = 30, the second at K = 300."""
MARGIN = 1e-3
MIN_LATENCY = 0.05
CHAINS = 4_000
SIMULATED_STEPS = 3_000


def play(num_clients, m, rounds, weights, seed=0):
    """Returns (ucb, g, p), [rounds, K] each: the terms from which exact PAUSE decides, with β 2 and η
    0.04."""
    alpha, gamma, gain = weights
    law = network.two_speed(num_clients=num_clients, min_latency=MIN_LATENCY)
    share = jnp.full(num_clients, 1 / num_clients)

    def step(state, t):
        ucb = bandit.ucb(state.mean_reward, state.counts, t - 1, m, gain)
        g = bandit.generalization(state.counts, t - 1, share, m, 2.0)
        p = bandit.privacy_reward(state.counts, 0.04)
        score = bandit.score(g, p, m, generalization_weight=alpha, privacy_weight=gamma)
        members = selection.best_set(ucb, score, m).members
        latency = law.sample(jax.random.fold_in(jax.random.key(seed), t))
        return bandit.update(state, members, MIN_LATENCY / latency[members]), (ucb, g, p)

    _, terms = jax.lax.scan(step, bandit.init(num_clients), jnp.arange(1, rounds + 1))
    return [np.asarray(x, np.float64) for x in terms]


def graph(terms, m, weights, rule="ranked"):
    """Returns the adjacency matrix, the energies and the constant C of one decision."""
    ucb, g, p = terms
    scale = {"generalization_weight": weights[0], "privacy_weight": weights[1]}
    energy = chain.energies(ucb, g, p, m, **scale)
    constant = chain.energy_constant(ucb, g, p, m, temperature_margin=MARGIN, **scale)
    return chain.neighbours([ucb, p, g], m, rule), energy, constant


def simulate(terms, m, weights, divisor, optimum):
    """Returns two shares of the annealer's chains, [steps + 1] each: those at an optimal set, and those that
    have
    visited one."""
    run = partial(
        selection.anneal_trace,
        m=m,
        generalization_weight=weights[0],
        privacy_weight=weights[1],
        steps=SIMULATED_STEPS,
        temperature_divisor=divisor,
        temperature_margin=MARGIN,
    )
    ucb, g, p = (jnp.asarray(x, jnp.float32) for x in terms)
    keys = jax.random.split(jax.random.key(1), CHAINS)
    trace = jax.jit(jax.vmap(lambda key: run(key, ucb, g, p)[1]))(keys)
    at_optimum = np.asarray(trace) >= optimum
    return at_optimum.mean(axis=0), np.maximum.accumulate(at_optimum, axis=1).mean(axis=0)


def survey(rounds=200, every=6):
    """Returns rows on Hajek's condition, degrees and Vanilla-SA's constant over the decisions of whole
    runs."""
    rows = []
    for (num_clients, m), (name, weights) in itertools.product([(6, 3), (8, 4), (10, 4)], SETTINGS.items()):
        terms = play(num_clients, m, rounds, weights)
        largest, largest_vanilla, ratio, too_small = [], [], [], []
        for t in range(5, rounds, every):
            decision = [x[t] for x in terms]
            adjacency, energy, constant = graph(decision, m, weights)
            depth = chain.critical_depth(adjacency, energy)
            every_swap = chain.neighbours(decision, m, "any")
            vanilla_constant = 2 * weights[0] + weights[1] + 1
            vanilla_depth = chain.critical_depth(every_swap, energy)
            largest.append(constant / depth if depth > 0 else np.inf)
            largest_vanilla.append(vanilla_constant / vanilla_depth if vanilla_depth > 0 else np.inf)
            degree = adjacency.sum(axis=1)
            ratio.append(degree.max() / degree.min())
            too_small.append(np.ptp(energy) > vanilla_constant)
        rows.append(
            {
                "clients": num_clients,
                "per_round": m,
                "weights": name,
                "decisions": len(largest),
                "share_where_kappa_1_suffices": float(np.mean(np.array(largest) >= 1)),
                "share_where_kappa_30_converges": float(np.mean(np.array(largest) >= 30)),
                "share_where_kappa_70_converges": float(np.mean(np.array(largest) >= 70)),
                "median_largest_kappa": float(np.median(largest)),
                "median_largest_kappa_vanilla": float(np.median(largest_vanilla)),
                "median_degree_ratio": float(np.median(ratio)),
                "share_where_vanilla_constant_is_too_small": float(np.mean(too_small)),
            }
        )
        print(rows[-1], flush=True)
    return rows


def survey_ties(instances=100, seed=0):
    """Returns rows on the effect of ties on N1 and N2 as printed and on Algorithm 3.

    Every list has random integers from 0 to `levels` - 1.
    """
    rows = []
    for (num_clients, m), levels in itertools.product([(5, 2), (6, 3), (7, 4)], (2, 3, 5, 1000)):
        rng = np.random.default_rng(seed)
        one_way = edges = asymmetric = irreversible = reducible = circles = walks = ranked_circles = 0
        for _ in range(instances):
            lists = [rng.integers(0, levels, num_clients).astype(float) for _ in range(3)]
            ucb, p, g = lists
            energy = chain.energies(ucb, g, p, m, generalization_weight=1.0, privacy_weight=1.0)
            printed = chain.neighbours(lists, m, "printed")
            one_way += int((printed & ~printed.T).sum())
            edges += int(printed.sum())
            asymmetric += not chain.is_symmetric(printed)
            irreversible += not chain.is_weakly_reversible(printed, energy)
            reducible += not chain.is_irreducible(printed)
            for _ in range(20):
                start, goal = (rng.choice(num_clients, m, replace=False) for _ in range(2))
                walks += 1
                circles += chain.path(ucb, start, goal, rng) is None
                ranks = np.argsort(np.argsort(ucb, kind="stable"))
                ranked_circles += chain.path(ranks, start, goal, rng) is None
        rows.append(
            {
                "clients": num_clients,
                "per_round": m,
                "levels": levels,
                "share_of_one_way_edges": one_way / edges,
                "share_of_asymmetric_graphs": asymmetric / instances,
                "share_not_weakly_reversible": irreversible / instances,
                "share_reducible": reducible / instances,
                "share_of_endless_paths": circles / walks,
                "share_of_endless_paths_with_ranks": ranked_circles / walks,
                "walks": walks,
            }
        )
        print(rows[-1], flush=True)
    return rows


def search(seeds=8):
    """Returns rows on the gap of annealing to the exact maximum on decisions of exact PAUSE, by κ, J and
    graph."""
    rows = []
    names = list(SETTINGS)
    for num_clients, m, name in ((30, 5, names[0]), (300, 15, names[1])):
        alpha, gamma, _ = SETTINGS[name]
        scale = {"generalization_weight": alpha, "privacy_weight": gamma}
        played = play(num_clients, m, 300, SETTINGS[name])
        ucb, g, p = (jnp.asarray(x[64::10], jnp.float32) for x in played)
        best = jax.vmap(lambda u, s, m=m: selection.best_set(u, s, m).value)(
            ucb, bandit.score(g, p, m, **scale)
        )
        keys = jax.random.split(jax.random.key(0), (len(ucb), seeds))
        graphs = {"tailored": selection.anneal, "any": selection.vanilla_anneal}
        for (graph_name, function), steps in itertools.product(graphs.items(), (500, 3_000)):

            @jax.jit
            @partial(jax.vmap, in_axes=(0, 0, 0, 0, None))
            @partial(jax.vmap, in_axes=(0, None, None, None, None))
            def run(key, u, g, p, divisor, function=function, m=m, steps=steps, scale=scale):
                return function(key, u, g, p, m=m, steps=steps, temperature_divisor=divisor, **scale).value

            for divisor in (1.0, 5.0, 30.0, 300.0, 3e3, 3e4):
                gap = np.asarray(best[:, None] - run(keys, ucb, g, p, divisor))
                rows.append(
                    {
                        "clients": num_clients,
                        "per_round": m,
                        "neighbours": graph_name,
                        "steps": steps,
                        "divisor": divisor,
                        "mean_gap": float(gap.mean()),
                        "share_optimal": float((gap < 1e-5).mean()),
                        "searches": gap.size,
                    }
                )
                print(rows[-1], flush=True)
    return rows


def draw(exact, simulated, divisors, largest, path):
    """Draws the three probabilities in panels side by side; dots are simulated chains."""
    x, y = Axis("step j of annealing", "log"), Axis("probability of being optimal", zero=True)
    labels = ["sign as printed" if divisor == 0 else f"κ = {divisor:g}" for divisor in divisors]
    titles = (
        f"the current set, (20): converges up to κ = {largest:.2f}",
        "the best set so far",
        "the last uphill set",
    )
    at = np.unique(np.geomspace(1, SIMULATED_STEPS + 1, 12).astype(int)) - 1
    panels = []
    for place, (title, chances) in enumerate(zip(titles, exact[1:], strict=True)):
        series = [
            Series(label, exact.steps + 1.0, chance, style=style)
            for style, (label, chance) in enumerate(zip(labels, chances, strict=True))
        ]
        for style, divisor in enumerate(divisors):
            if place < 2 and divisor in simulated:
                dots = simulated[divisor][place][at]
                series.append(Series("", at + 1.0, dots, mark="point", style=style))
        panels.append(Panel(x, y, tuple(series), title=title))
    caption = "Theorem 4: probability that a set is optimal. Lines are exact, points are simulated chains."
    Chart("theorem4", caption, tuple(panels), columns=3).save(path, height=2.9)


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, required=True, help="folder for the results")
    parser.add_argument("--clients", type=int, default=6, help="K, number of clients")
    parser.add_argument("--per-round", type=int, default=3, help="m, clients per round")
    parser.add_argument(
        "--round", type=int, default=51, help="number of the round whose decision is annealed"
    )
    parser.add_argument("--steps", type=int, default=1_000_000, help="largest step j")
    parser.add_argument(
        "--divisors",
        type=float,
        nargs="+",
        default=[0, 1, 3, 5, 30, 300],
        help="values of κ; 0 accepts every set, like the sign that the paper prints",
    )
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)

    weights = next(iter(SETTINGS.values()))
    m = options.per_round
    terms = [x[-1] for x in play(options.clients, m, options.round, weights)]
    adjacency, energy, constant = graph(terms, m, weights)
    depth = chain.critical_depth(adjacency, energy)
    largest = constant / depth if depth > 0 else np.inf
    steps = np.unique(np.geomspace(1, options.steps + 1, 60).astype(int)) - 1
    exact = chain.optimum_probability(
        adjacency, energy, constant=constant, divisors=options.divisors, steps=steps
    )
    optimum = np.unique(energy.round(6))[-2:].mean()
    simulated = {d: simulate(terms, m, weights, d, optimum) for d in options.divisors if d > 0}
    draw(exact, simulated, options.divisors, largest, options.out / "theorem4.png")
    with (options.out / "theorem4.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["divisor", "step", "current", "best", "last_uphill"])
        for d, divisor in enumerate(options.divisors):
            columns = (exact.steps, exact.current[d], exact.best[d], exact.last_uphill[d])
            writer.writerows([divisor, *row] for row in zip(*columns, strict=True))
    result = {
        "constant": constant,
        "critical_depth": depth,
        "largest_kappa": largest,
        "sets": len(energy),
        "degrees": [int(d) for d in (adjacency.sum(axis=1).min(), adjacency.sum(axis=1).max())],
        "last": {d: [float(s[i, -1]) for s in exact[1:]] for i, d in enumerate(options.divisors)},
        "survey": survey(),
        "ties": survey_ties(),
        "search": search(),
    }
    (options.out / "theorem4.json").write_text(json.dumps(result, indent=2))


if __name__ == "__main__":
    main()
