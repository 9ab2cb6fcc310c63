"""Compares searches with plain sweeps: the best value on fresh seeds against the number of runs.

    python scripts/bench/search.py play bandit --out bench.jsonl     (or digits, mnist; continues the file)
    python scripts/bench/search.py show bench.jsonl --out docs/images/search_pays.png

Each arm has several searches with the same number of runs. The arms of tpe play each search by itself. Random
settings are independent, so one long search is cut into pieces. A sweep plays one long Sobol sequence, which
is cut into pieces too. The grid is one sweep, in a random order for each search. The incumbent of a search,
after some share of its settings, is the best setting by the search's own seeds. Incumbents are simulated
again on fresh seeds.
"""

import argparse
import json
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

sys.path.insert(0, str(Path(__file__).parents[1]))

import numpy as np
from curves_at import marked, plus_minus

from pausejax import kinds
from pausejax.data.host import DataCache
from pausejax.execution.local import LocalExecutor
from pausejax.execution.play import play_in_memory
from pausejax.plotting.chart import Axis, Chart, Panel
from pausejax.plotting.curves import Samples, mean_series
from pausejax.results.stores import MemoryStore
from pausejax.searches.goal import figures_at, goal_of
from pausejax.searches.options import SearchOptions, with_horizon
from pausejax.searches.search import search
from pausejax.study.plan import make_plan
from pausejax.study.study import Study

SHARES = (0.0625, 0.125, 0.25, 0.5, 1.0)
ARMS = ("tpe", "tpe, two seeds", "grid, one seed", "random", "sobol", "grid")
"""Methods that are compared. "tpe" has one seed for each setting, as a search has by default. The other arms
have
two seeds, unless their name says "one seed"."""
RUNS = 128
"""Number of runs of every search: settings times seeds."""


class Problem(NamedTuple):
    """Study whose parameters are searched."""

    document: dict[str, Any]
    """Spec without the searched parameters."""
    ranges: dict[str, tuple[str, list[float]]]
    """Law and ends of each searched parameter."""
    steps: int
    """Number of values of each parameter on the grid."""
    options: SearchOptions
    searches: int
    """Number of searches of each arm."""
    fresh: int
    """Number of fresh seeds."""


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
        SearchOptions(metrics=("cumulative_pseudo_regret",)),
        20,
        20,
    ),
    "digits": Problem(_DIGITS, _WEIGHTS, 2, SearchOptions(at_latency=30.0), 20, 10),
    "mnist": Problem(
        {**_DIGITS, "data": {"dataset": "mnist", "train_samples": 2000}, "eval_every": 25},
        _WEIGHTS,
        2,
        SearchOptions(at_latency=30.0),
        20,
        8,
    ),
}


def seeds_of(arm: str) -> int:
    """Returns the number of seeds of every setting of an arm."""
    return 1 if "one seed" in arm or (arm.startswith("tpe") and "two seeds" not in arm) else 2


Tried = tuple[Mapping[str, Any], float]
"""The values of a setting, and its score on the seeds of the search; more is better."""


def studied(problem: Problem, given: Mapping[str, Any], more: Mapping[str, Any], **parsing: Any) -> Study:
    """Parses the spec of a problem, with values or ranges of the searched parameters."""
    (policy,) = problem.document["policy"]
    document = {**problem.document, "policy": [{**policy, **given}], **more}
    return kinds.parse(document, **parsing)


def searched(problem: Problem, arm: str, trials: int, seed: int) -> list[Tried]:
    """Runs one search over the ranges, and returns its settings in order."""
    given = {name: {law: ends} for name, (law, ends) in problem.ranges.items()}
    study = studied(problem, given, {"seeds": seeds_of(arm)}, searched=True)
    asked = problem.options._replace(trials=trials, sampler=arm.partition(",")[0], sampler_seed=seed)
    result = search(study, asked, LocalExecutor(DataCache()), MemoryStore())
    return [(trial.setting.values, trial.score.values[0]) for trial in result.trials]


def swept(problem: Problem, arm: str, pieces: int) -> list[Tried]:
    """Runs a sweep over the grid, or over a Sobol sequence for `pieces` searches; returns its settings in
    order."""
    seeds, more = seeds_of(arm), {}
    given: dict[str, Any] = {name: {law: ends} for name, (law, ends) in problem.ranges.items()}
    if arm == "sobol":
        more = {"sampling": {"n": pieces * RUNS // seeds, "method": "sobol"}}
    else:
        given = {name: spread(*held, problem.steps) for name, held in problem.ranges.items()}
    study = with_horizon(studied(problem, given, {"seeds": seeds, **more}), problem.options)
    plan, goal = make_plan(study), goal_of(study, problem.options)
    result = play_in_memory(plan, LocalExecutor(DataCache()))
    arrays = {str(name): variable.values for name, variable in result.data_vars.items()}
    figures: dict[tuple[Any, ...], list[np.ndarray]] = {}
    for run, figure in zip(plan.runs, figures_at(study, goal, arrays), strict=True):
        figures.setdefault(tuple(run.values.items()), []).append(figure)
    return [(dict(values), goal.score(np.array(own)).values[0]) for values, own in figures.items()]


def spread(law: str, ends: Sequence[float], steps: int) -> list[float]:
    """Returns the middles of equal parts of a range."""
    parts = (np.arange(steps) + 0.5) / steps
    low, high = np.log(ends) if law == "log_uniform" else ends
    values = low + parts * (high - low)
    return [float(f"{x:.6g}") for x in (np.exp(values) if law == "log_uniform" else values)]


def incumbents(tried: Sequence[Tried]) -> Iterator[tuple[float, Mapping[str, Any]]]:
    """Yields each share of `SHARES` that has a setting, and the values of the best setting up to there."""
    for share in SHARES:
        if so_far := tried[: int(share * len(tried))]:
            yield share, max(so_far, key=lambda one: one[1] if one[1] == one[1] else -np.inf)[0]


def play_arm(problem: Problem, arm: str) -> list[dict[str, Any]]:
    """Plays an arm, and returns a row for each incumbent of its searches."""
    trials, count = RUNS // seeds_of(arm), problem.searches
    if arm.startswith("tpe"):
        searches = [searched(problem, arm, trials, number) for number in range(count)]
    elif arm.startswith("grid"):
        whole, rng = swept(problem, arm, 1), np.random.default_rng(0)
        # The grid with one seed has half as many runs, so its last setting is repeated.
        searches = [[whole[place] for place in rng.permutation(len(whole))] for _ in range(count)]
        searches = [[*one, *one[-1:] * (trials - len(one))] for one in searches]
    else:
        whole = searched(problem, arm, trials * count, 0) if arm == "random" else swept(problem, arm, count)
        searches = [whole[place * trials : (place + 1) * trials] for place in range(count)]
    return [
        {"arm": arm, "search": number, "share": share, "values": dict(values)}
        for number, tried in enumerate(searches)
        for share, values in incumbents(tried)
    ]


def on_fresh_seeds(problem: Problem, rows: Sequence[dict[str, Any]]) -> list[float]:
    """Returns the metric of each row's setting, as a mean over seeds that no search has used."""
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
    study = with_horizon(study, problem.options)
    result = play_in_memory(make_plan(study), LocalExecutor(DataCache()))
    arrays = {str(name): variable.values for name, variable in result.data_vars.items()}
    figures = figures_at(study, goal_of(study, problem.options), arrays)[:, 0]
    labels = result["policy"].values
    means = {place: float(figures[labels == f"{place}"].mean()) for place in range(len(unique))}
    return [means[unique.index(point)] for point in points]


def play(name: str, path: Path, arms: Sequence[str]) -> None:
    """Plays the arms of a problem that the file lacks, and appends their rows to the file."""
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
    """Returns the values of an arm's incumbents at a share, for all searches that have one."""
    return np.array(
        [row["value"] for row in rows if (row["problem"], row["arm"], row["share"]) == (name, arm, share)]
    )


def show(path: Path, picture: Path) -> None:
    """Prints the table of a file, and draws its picture."""
    rows, panels = read(path), []
    spent = [f"{share * RUNS:.0f}" for share in SHARES]
    for name in dict.fromkeys(row["problem"] for row in rows):
        print(f"\n{name}\n")
        print("| arm | searches | " + " | ".join(f"{runs} runs" for runs in spent) + " |")
        print("| --- " * (len(SHARES) + 2) + "|")
        series = []
        for style, arm in enumerate(ARMS):
            found = [values_of(rows, name, arm, share) for share in SHARES]
            there = [place for place, values in enumerate(found) if len(values) > 1]
            if not there:
                continue
            cells = [plus_minus(values, ".4g", ".2g") if len(values) > 1 else "–" for values in found]
            print(f"| {arm} | {max(map(len, found))} | " + " | ".join(cells) + " |")
            beside = np.array(there) + 0.06 * (style - 2.5)  # so that bars do not hide each other
            values = np.array([found[place] for place in there]).T
            samples = Samples(beside, values, np.arange(len(values)))
            series += marked(mean_series(arm, samples, style))
        y = Axis("pseudo-regret" if name == "bandit" else "accuracy")
        panels.append(Panel(Axis("runs", names=tuple(spent)), y, tuple(series), title=name))
    caption = (
        "Value of the best setting on fresh seeds against the number of runs: means with 95 % t intervals."
    )
    Chart("search_pays", caption, tuple(panels), columns=len(panels)).save(picture)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("action", choices=("play", "show"))
    parser.add_argument("what", help="problem to play, or file to show")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument(
        "--arm", action="append", choices=ARMS, help="arm to play; may be repeated (default: all)"
    )
    options = parser.parse_args()
    if options.action == "play":
        play(options.what, options.out, options.arm or ARMS)
    else:
        show(Path(options.what), options.out)


if __name__ == "__main__":
    main()
