"""Does a search pay? Best-found value on fresh seeds against rounds spent, beside designs played to the end.

    python scripts/bench/search.py play bandit --out bench.jsonl     (or digits, mnist; goes on where it was)
    python scripts/bench/search.py show bench.jsonl --out docs/images/search_pays.png

Each arm has several searches. Those of tpe are searches of their own. Random settings are independent, so one
long search is cut into pieces; a Sobol sequence is cut likewise; the grid is one, in as many random orders. A
search's incumbent at a share of the budget is the best by its own seeds of what had come to the end by then
(before anything has: of what had come farthest), and is what is played again on fresh seeds.
"""

import argparse
import json
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from pausejax import kinds
from pausejax.data.host import Sources
from pausejax.engine import local
from pausejax.report.statistics import band
from pausejax.searches.find import Found, search
from pausejax.searches.goal import figures_at
from pausejax.searches.options import Options
from pausejax.searches.search import Ended
from pausejax.study.plan import make_plan

SHARES = (0.0625, 0.125, 0.25, 0.5, 1.0)
ARMS = (
    "tpe",
    "tpe, two seeds",
    "tpe, one rung",
    "tpe, early rungs",
    "grid, one seed",
    "random",
    "sobol",
    "grid",
)
"""tpe as a search is by default, of one seed a setting; of two; with one rung at a third of the way; with
rungs from 1/27 on. Designs are of two seeds, the grid also of one."""


class Problem(NamedTuple):
    """What is searched."""

    document: dict[str, Any]
    """A spec without what is chosen."""
    ranges: dict[str, tuple[str, list[float]]]
    """Law and ends of each parameter."""
    steps: int
    """Values of each parameter on the grid."""
    options: Options
    searches: int
    pieces: int
    """Searches that random and Sobol are cut into."""
    fresh: int
    """Seeds."""


_PRIVACY = {"privacy_budget": 100.0, "sensitivity": 0.012}
_WEIGHTS = {
    "generalization_weight": ("log_uniform", [0.3, 1000.0]),
    "generalization_exponent": ("uniform", [1.05, 3.0]),
    "privacy_weight": ("log_uniform", [0.3, 300.0]),
    "exploitation_gain": ("log_uniform", [0.1, 30.0]),
    "budget_decay": ("log_uniform", [0.004, 0.4]),
    "learning_rate": ("log_uniform", [0.001, 0.1]),
}
_DIGITS = {
    "rounds": 100,
    "eval_every": 5,
    "seeds": 2,
    "training": {"model": "mlp"},
    "privacy": _PRIVACY,
    "policy": [{"name": "pause"}],
}
PROBLEMS = {
    "bandit": Problem(
        {
            "mode": "bandit",
            "rounds": 300,
            "seeds": 2,
            "policy": [{"name": "sa_pause", "annealing_steps": 100}],
        },
        {
            "temperature_divisor": ("log_uniform", [0.3, 300.0]),
            "exploitation_gain": ("log_uniform", [0.1, 30.0]),
            "budget_decay": ("log_uniform", [0.004, 0.4]),
        },
        4,
        Options(budget=4**3 * 600, metrics=("cumulative_pseudo_regret",)),
        20,
        20,
        20,
    ),
    "digits": Problem(_DIGITS, _WEIGHTS, 2, Options(budget=9000, at_latency=30.0), 20, 20, 10),
    "mnist": Problem(
        {**_DIGITS, "data": {"dataset": "mnist", "train_samples": 2000}, "eval_every": 25},
        _WEIGHTS,
        2,
        Options(budget=9000, at_latency=30.0),
        20,
        20,
        8,
    ),
}


def searched(problem: Problem, arm: str, budget: int, seed: int) -> Found:
    """One search; of `grid` over the lists, else over the ranges; designs stop nobody early."""
    sampler, _, variant = arm.partition(", ")
    given: dict[str, Any] = {name: {law: ends} for name, (law, ends) in problem.ranges.items()}
    if sampler == "grid":
        given = {name: spread(*held, problem.steps) for name, held in problem.ranges.items()}
    document = {key: value for key, value in problem.document.items() if key != "policy"}
    document["policy"] = [{**problem.document["policy"][0], **given}]
    document["seeds"] = seeds_of(arm)
    study = kinds.parse(document, searched=True)
    options = problem.options._replace(budget=budget, sampler=sampler, sampler_seed=seed)
    if variant == "one rung":
        options = options._replace(reduction=3.0)
    elif variant == "early rungs":
        options = options._replace(first_rung=(options.at_latency or study.rounds) / 27)
    return search(study, options, Sources())


def seeds_of(arm: str) -> int:
    """Of every setting."""
    return 1 if "one seed" in arm or (arm.startswith("tpe") and "two seeds" not in arm) else 2


def spread(law: str, ends: Sequence[float], steps: int) -> list[float]:
    """The middles of equal parts of a range."""
    parts = (np.arange(steps) + 0.5) / steps
    low, high = np.log(ends) if law == "log_uniform" else ends
    values = low + parts * (high - low)
    return [float(f"{x:.6g}") for x in (np.exp(values) if law == "log_uniform" else values)]


def incumbents(ended: Sequence[tuple[float, Ended]], budget: float) -> Iterator[tuple[float, Ended]]:
    """The best so far at each share of the budget, of settings with what had been spent when they ended."""
    for share in SHARES:
        there = [one for spent, one in ended if spent <= share * budget and one.history]
        if there:
            yield share, max(there, key=lambda one: (one.history[-1][0], one.history[-1][1].values[0]))


def told(arm: str, number: int, share: float, one: Ended) -> dict[str, Any]:
    return {"arm": arm, "search": number, "share": share, "values": dict(one.setting.values)}


def play_arm(problem: Problem, arm: str) -> list[dict[str, Any]]:
    """The incumbents of all searches of an arm."""
    budget, rows = problem.options.budget, []
    if arm.startswith("tpe"):
        for number in range(problem.searches):
            found = searched(problem, arm, budget, number)
            ended = [(float(one.spent), one) for one in found.ended]
            rows += [told(arm, number, *at) for at in incumbents(ended, budget)]
        return rows
    pieces = 1 if arm.startswith("grid") else problem.pieces
    found = searched(problem, arm, (2 if arm.startswith("grid") else pieces) * budget, 0)
    whole = sorted(found.ended, key=lambda one: one.number)
    length = len(whole) // pieces
    orders = [range(place * length, (place + 1) * length) for place in range(pieces)]
    if arm.startswith("grid"):
        rng = np.random.default_rng(0)
        orders = [rng.permutation(len(whole)) for _ in range(problem.searches)]
    seeds = len(found.study.seeds)
    for number, order in enumerate(orders):
        chosen = [whole[place] for place in order]
        # One after another: each costs what its runs have played.
        spent = np.cumsum([seeds * one.rounds for one in chosen], dtype=float)
        rows += [told(arm, number, *at) for at in incumbents(list(zip(spent, chosen, strict=True)), budget)]
    return rows


def on_fresh_seeds(problem: Problem, rows: Sequence[dict[str, Any]]) -> list[float]:
    """The metric of each row's setting, averaged over seeds that no search has seen."""
    names = list(problem.ranges)
    points = [tuple(row["values"][name] for name in names) for row in rows]
    unique = list(dict.fromkeys(points))
    first = problem.document["seeds"]
    document = {**problem.document, "seeds": list(range(first, first + problem.fresh))}
    policy = problem.document["policy"][0]
    document["policy"] = [
        {**policy, **dict(zip(names, point, strict=True)), "label": f"{place}"}
        for place, point in enumerate(unique)
    ]
    study = kinds.parse(document)
    latency = problem.options.at_latency
    if latency:
        study = kinds.parse({**document, "stop_at_latency": latency})
    result = local.run(make_plan(study), Sources())
    found = searched_goal(problem)
    arrays = {str(name): variable.values for name, variable in result.data_vars.items()}
    figures = figures_at(study, found, arrays, found.rungs[-1])[:, 0]
    labels = result["policy"].values
    means = {place: float(figures[labels == f"{place}"].mean()) for place in range(len(unique))}
    return [means[unique.index(point)] for point in points]


def searched_goal(problem: Problem) -> Any:
    """What the searches are judged by, at their end."""
    from pausejax.searches.goal import goal_of
    from pausejax.searches.options import step_of, up_to

    study = up_to(kinds.parse(problem.document), problem.options)
    by_latency = problem.options.at_latency is not None
    return goal_of(
        study,
        problem.options.metrics,
        None,
        (),
        horizon=problem.options.at_latency or study.rounds,
        by_latency=by_latency,
        reduction=1.0,
        first=None,
        step=step_of(study),
    )


def play(name: str, path: Path, arms: Sequence[str]) -> None:
    """Plays what the file lacks, an arm at a time."""
    problem = PROBLEMS[name]
    done = {(row["problem"], row["arm"]) for row in read(path)}
    for arm in arms:
        if (name, arm) in done:
            continue
        start = time.process_time()
        rows = play_arm(problem, arm)
        played = time.process_time() - start
        for row, value in zip(rows, on_fresh_seeds(problem, rows), strict=True):
            row |= {"problem": name, "value": value, "cpu_seconds": round(played, 1)}
        with path.open("a") as file:
            file.writelines(json.dumps(row) + "\n" for row in rows)
        print(f"{name} {arm}: {played:.0f} s of CPU time")


def read(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def values_of(rows: Sequence[dict[str, Any]], name: str, arm: str, share: float) -> np.ndarray:
    """Of all searches of an arm that have an incumbent there."""
    return np.array(
        [row["value"] for row in rows if (row["problem"], row["arm"], row["share"]) == (name, arm, share)]
    )


def show(path: Path, picture: Path) -> None:
    """The table, and the picture of it."""
    from pausejax.report.figure import Figure
    from pausejax.report.style import look, styled_context

    rows = read(path)
    names = list(dict.fromkeys(row["problem"] for row in rows))
    with styled_context():
        figure = Figure(figsize=(3.4 * len(names), 3.1), layout="constrained")
        panels = figure.subplots(1, len(names), squeeze=False)[0]
        for panel, name in zip(panels, names, strict=True):
            budget = PROBLEMS[name].options.budget
            print(f"\n{name}, {budget:,} rounds × runs\n")
            print("| arm | searches | " + " | ".join(f"{share * budget:,.0f}" for share in SHARES) + " |")
            print("| --- " * (len(SHARES) + 2) + "|")
            for place, arm in enumerate(ARMS):
                found = [(share, values_of(rows, name, arm, share)) for share in SHARES]
                found = [(share, values) for share, values in found if len(values) > 1]
                if not found:
                    continue
                bands = {share: band(values) for share, values in found}
                cells = [
                    f"{bands[s].mean:.4g} ± {bands[s].half_width:.2g}" if s in bands else "–" for s in SHARES
                ]
                print(f"| {arm} | {max(len(v) for _, v in found)} | " + " | ".join(cells) + " |")
                own = look(place)
                panel.errorbar(
                    [share * budget * (1 + 0.02 * place) for share in bands],
                    [b.mean for b in bands.values()],
                    [b.half_width for b in bands.values()],
                    color=own.colour,
                    marker=own.marker,
                    linestyle=own.dash,
                    markersize=3.5,
                    linewidth=1,
                    capsize=1.5,
                    label=arm,
                )
            panel.set_xscale("log", base=2)
            panel.set_xlabel("rounds × runs spent")
            panel.set_title(name)
            panel.set_ylabel("pseudo-regret" if name == "bandit" else "accuracy")
        named = [zip(*panel.get_legend_handles_labels(), strict=True) for panel in panels]
        handles = {label: handle for pairs in named for handle, label in pairs}
        figure.legend(handles.values(), handles.keys(), loc="outside lower center", ncols=4)
        figure.savefig(picture, dpi=150)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("action", choices=("play", "show"))
    parser.add_argument("what", help="a problem to play, or the file to show")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--arm", action="append", choices=ARMS, help="to play, in place of all")
    options = parser.parse_args()
    if options.action == "play":
        play(options.what, options.out, options.arm or ARMS)
    else:
        show(Path(options.what), options.out)


if __name__ == "__main__":
    main()
