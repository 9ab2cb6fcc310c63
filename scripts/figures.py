"""Keeps the curves of the paper's figures, and makes the tables of docs/reproduction.md from them.

    pausejax run sweeps/paper/fig3.toml --set seeds=10 --out out/fig3
    python scripts/figures.py keep fig3 out/fig3 [--cpu 150]    # curves, spec, versions: docs/results
    python scripts/figures.py page                              # pictures and tables of all that is kept

A study may be in several folders: `keep fig2 DIR DIR …` joins their runs. `keep fig2 --add DIR` adds runs to
the file that is kept. Accuracies are means over the last 10 rounds, in %. A claim compares two policies,
paired by seed, at quarters of the time that PAUSE's rounds last; in Figure 3, at quarters of PAUSE's rounds.
A claim holds if all four 95 % intervals lie on the claim's side of 0. It does not hold if one of the four
intervals of level 1 - 0.05 / 4 lies on the other side. At this level all four intervals hold together at 95
%.
"""

import argparse
import collections
import datetime
import json
import re
import sys
from pathlib import Path
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).parent))

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import xarray as xr
from curves_at import accuracy_at, plus_minus

import pausejax
from pausejax.analysis import intervals
from pausejax.analysis.mean_curves import smooth
from pausejax.clients.variables import METRICS
from pausejax.plotting.curves import Against, curves
from pausejax.plotting.data import Axis
from pausejax.plotting.grid import Cell, Grid, Line, lines

DOCS = Path(__file__).resolve().parents[1] / "docs"
WINDOW = 10
"""Rounds over which accuracies are averaged, as in the paper."""

PARTS = (0.25, 0.5, 0.75, 1.0)
"""Shares of PAUSE's time or rounds at which claims are tested."""

NEAR = 2.0
"""Difference of accuracy, in points, within which two policies count as equal."""

CURVES = ("elapsed", "max_leakage", "test_accuracy")
RIVALS = ("random", "clustered by size", "clustered by similarity", "fastest", "FedAvg, private")
POLICIES = ("PAUSE", "SA-PAUSE", *RIVALS, "FedAvg, no privacy")
"""Policies of all figures. Each policy has the same colour in all of them."""


class Claim(NamedTuple):
    """Claim that a policy has more than another policy, less, or as much, as `relation` says."""

    better: str
    worse: str
    relation: str = ">"


class Shown(NamedTuple):
    """Metric, horizontal axis and claims of a figure of the paper."""

    measure: str
    clock: Against
    claims: tuple[Claim, ...]


def _ahead(*better: str, than: tuple[str, ...] = RIVALS, relation: str = ">") -> tuple[Claim, ...]:
    return tuple(Claim(one, other, relation) for one in better for other in than)


_SAME = Claim("SA-PAUSE", "PAUSE", "≈")
_SAMPLING = RIVALS[:3]
FIGURES = {
    "fig2": Shown("test_accuracy", "time", (*_ahead("PAUSE"), _SAME)),
    "fig3": Shown(
        "max_leakage",
        "round",
        (*_ahead("PAUSE", than=_SAMPLING, relation="<"), Claim("FedAvg, private", "fastest", "=")),
    ),
    "fig4": Shown("test_accuracy", "time", _ahead("PAUSE", "SA-PAUSE")),
    "fig5": Shown("max_leakage", "time", _ahead("PAUSE", "SA-PAUSE", relation="<")),
    "fig6": Shown("test_accuracy", "time", _ahead("SA-PAUSE")),
    "fig7": Shown("max_leakage", "time", _ahead("SA-PAUSE", relation="<")),
    "fig8": Shown("test_accuracy", "time", _ahead("SA-PAUSE")),
    "fig9": Shown("max_leakage", "time", _ahead("SA-PAUSE", relation="<")),
}
"""Figures of the paper, with the claims in its text."""

LABELS = {"test_accuracy": "test accuracy (%)", "max_leakage": "maximum leakage ε (per coordinate)"}


def keep(name: str, folders: list[Path], cpu: float | None, to: Path, add: bool = False) -> Path:
    """Writes the curves of some results as one Parquet file, with a row for each run and round.

    Args:
      name: the name of the figure.
      folders: the folders of the results.
      cpu: the CPU seconds of the results; None if unknown.
      to: the folder of the file.
      add: whether to add to the runs in the file. The CPU seconds are then known if both costs are known.

    Returns:
      The path of the file.

    Raises:
      SystemExit: two runs have one policy and seed, or the file to add to is missing.
    """
    frames, made, specs = [], [], []
    path = to / f"{name}.parquet"
    if add:
        if not path.exists():
            raise SystemExit(f"keep {name} --add: there is no file {path} to add to. Leave --add out")
        table, about = _load(path)
        frames, made, specs = [table.to_pandas()], json.loads(about["made"]), json.loads(about["specs"])
        cpu = None if cpu is None or not about["cpu_seconds"] else cpu + float(about["cpu_seconds"])
    for folder in folders:
        result = pausejax.open(folder)
        for line in lines(result):
            frames.append(_frame(line))
        specs.append(str(result.attrs["spec"]))
        for entry in json.loads(result.attrs["made"]):
            entry["command"] = re.sub(r"--out \S+", f"--out out/{folder.name}", entry["command"])
            made.append(entry)
    whole = pd.concat(frames, ignore_index=True)
    if whole.duplicated(["line", "seed", "round"]).any():
        raise SystemExit(f"keep {name}: two runs have the same policy and seed. Name each result once")
    about = {
        "specs": json.dumps(list(dict.fromkeys(specs)), ensure_ascii=False),
        "made": json.dumps(made, ensure_ascii=False),
        "kept": datetime.date.today().isoformat(),
        "cpu_seconds": "" if cpu is None else f"{cpu:.0f}",
    }
    table = pa.Table.from_pandas(whole, preserve_index=False).replace_schema_metadata(about)
    to.mkdir(parents=True, exist_ok=True)
    pq.write_table(table, path, compression="zstd", compression_level=19)
    return path


def _load(path: Path) -> tuple[pa.Table, dict[str, str]]:
    table = pq.read_table(path)
    return table, {key.decode(): value.decode() for key, value in table.schema.metadata.items()}


def _frame(line: Line) -> pd.DataFrame:
    runs = line.runs
    seeds, rounds = runs["seed"].values, runs["round"].values
    accuracy = np.full((len(seeds), len(rounds)), np.nan, np.float32)
    accuracy[:, np.searchsorted(rounds, runs["eval_round"].values)] = runs["test_accuracy"].values
    return pd.DataFrame(
        {
            "line": line.label,
            "seed": np.repeat(seeds, len(rounds)),
            "round": np.tile(rounds, len(seeds)),
            "elapsed": runs["elapsed"].values.ravel(),
            "max_leakage": runs["max_leakage"].values.ravel(),
            "test_accuracy": accuracy.ravel(),
        }
    )


def read(path: Path) -> tuple[dict[str, xr.Dataset], dict[str, str]]:
    """Returns the runs of a file by label, with smoothed accuracies, and the metadata of the file."""
    table, about = _load(path)
    found = {}
    for label, rows in table.to_pandas().groupby("line", sort=False):
        wide = {name: rows.pivot(index="seed", columns="round", values=name) for name in CURVES}
        accuracy = wide["test_accuracy"].dropna(axis="columns", how="all")
        # The last round is evaluated too, so the last two evaluations may be closer than the others.
        every = int(accuracy.columns[0])
        found[str(label)] = xr.Dataset(
            {
                "elapsed": (("run", "round"), wide["elapsed"].to_numpy()),
                "max_leakage": (("run", "round"), wide["max_leakage"].to_numpy()),
                "test_accuracy": (("run", "eval"), smooth(accuracy.to_numpy(), max(1, WINDOW // every))),
            },
            {
                "seed": ("run", wide["elapsed"].index.to_numpy()),
                "round": wide["elapsed"].columns.to_numpy(),
                "eval_round": ("eval", accuracy.columns.to_numpy()),
            },
        )
    return found, about


def marks(found: dict[str, xr.Dataset], clock: str) -> list[float]:
    """Returns the times or rounds at which claims are tested: quarters of PAUSE's mean time or of its
    rounds."""
    pause = found["PAUSE"]
    last = float(pause["elapsed"].values[:, -1].mean()) if clock == "time" else pause.sizes["round"]
    return [round(part * last) for part in PARTS]


def values(runs: xr.Dataset, shown: Shown, mark: float) -> np.ndarray:
    """Returns a metric of each run at a time or round, [runs]; after the run's end, its last value."""
    if shown.measure == "test_accuracy":
        return 100 * accuracy_at(runs, mark)
    leakage = runs["max_leakage"].values.astype(np.float64)
    if shown.clock == "round":
        return leakage[:, min(int(mark), leakage.shape[1]) - 1]
    ended = (runs["elapsed"].values <= mark).sum(axis=1)
    return np.where(ended > 0, leakage[np.arange(len(leakage)), np.maximum(ended - 1, 0)], 0.0)


def judge(found: dict[str, xr.Dataset], shown: Shown, claim: Claim) -> tuple[int, list[str], str]:
    """Returns the number of seeds, the paired differences at each mark, and the verdict on the claim."""
    left, right = found[claim.better], found[claim.worse]
    seeds = np.intersect1d(left["seed"].values, right["seed"].values)
    left, right = (runs.isel(run=np.isin(runs["seed"].values, seeds)) for runs in (left, right))
    gaps = [values(left, shown, mark) - values(right, shown, mark) for mark in marks(found, shown.clock)]
    return len(seeds), [interval(gap, "+") for gap in gaps], verdict(gaps, claim.relation)


def verdict(gaps: list[np.ndarray], relation: str) -> str:
    """Returns the verdict on a claim from the differences at each mark.

    Marks before the first evaluation of a run are ignored.
    """
    gaps = [gap for gap in gaps if np.isfinite(gap).all()]
    if not gaps:
        return "not beyond doubt"
    if relation == "=":
        return "holds" if all((np.abs(gap) < 1e-3).all() for gap in gaps) else "**does not hold**"
    # A claim holds if all intervals do, so each has level 95 %. It fails if one does, so that level is
    # higher.
    found = np.array([intervals.interval(gap)[1:3] for gap in gaps])
    wide = np.array([intervals.interval(gap, level=1 - 0.05 / len(gaps))[1:3] for gap in gaps])
    if relation == "≈":
        holds, fails = np.abs(found).max(axis=1) < NEAR, (wide[:, 0] > NEAR) | (wide[:, 1] < -NEAR)
    elif relation == ">":
        holds, fails = found[:, 0] > 0, wide[:, 1] < 0
    else:
        holds, fails = found[:, 1] < 0, wide[:, 0] > 0
    if holds.all():
        return "holds"
    return "**does not hold**" if fails.any() else "not beyond doubt"


def interval(samples: np.ndarray, sign: str = "") -> str:
    if not np.isfinite(samples).all():
        return "–"
    return plus_minus(samples, f"{sign}.1f")


def draw(found: dict[str, xr.Dataset], shown: Shown, path: Path) -> None:
    """Draws means over seeds with bands, on the axes of the paper's figure."""
    drawn = tuple(
        Line(label, label, runs, POLICIES.index(label))
        for label, runs in found.items()
        if shown.measure == "test_accuracy" or np.isfinite(runs["max_leakage"]).all()
    )
    y = Axis(LABELS[shown.measure], zero=True)
    chart = curves(Grid((Cell("", drawn),), 1), METRICS[shown.measure], shown.clock, y=y)
    chart.save(path, width=5.0)


def table(head: list[str], rows: list[list[str]]) -> str:
    return "\n".join(f"| {' | '.join(row)} |" for row in [head, ["---"] * len(head), *rows])


def claims(kept: dict[str, tuple[dict[str, xr.Dataset], dict[str, str]]]) -> str:
    """Returns Markdown with the number of claims by verdict, and a table of all claims with a file."""
    rows = []
    for name, (found, _) in kept.items():
        shown = FIGURES[name]
        unit = "points" if shown.measure == "test_accuracy" else "ε"
        for claim in shown.claims:
            if claim.better in found and claim.worse in found:
                count, gaps, holds = judge(found, shown, claim)
                words = f"{claim.better} {claim.relation} {claim.worse}, {unit}"
                rows.append([name.removeprefix("fig"), words, str(count), *gaps, holds])
    verdicts = collections.Counter(row[-1] for row in rows).most_common()
    counts = ", ".join(f'{count} "{verdict}"' for verdict, count in verdicts)
    listed = table(["figure", "claim", "seeds", *(f"{part:.0%}" for part in PARTS), ""], rows)
    return f"The {len(rows)} claims by verdict: {counts}.\n\n{listed}"


def levels(name: str, found: dict[str, xr.Dataset], about: dict[str, str]) -> str:
    """Returns Markdown with a figure's picture, command, cost, and the values of every policy at the
    marks."""
    shown = FIGURES[name]
    at = marks(found, shown.clock)
    unit = "{:.0f} s" if shown.clock == "time" else "round {:.0f}"

    def cell(runs: xr.Dataset, mark: float) -> str:
        value = interval(values(runs, shown, mark))
        played = (runs["elapsed"].values <= mark).sum(axis=1).mean()
        return value if shown.clock == "round" else f"{value} [{played:.0f}]"

    rows = [
        [label, str(runs.sizes["run"]), *(cell(runs, mark) for mark in at)]
        for label, runs in found.items()
        if shown.measure == "test_accuracy" or np.isfinite(runs["max_leakage"]).all()
    ]
    made = json.loads(about["made"])
    commands = "\n".join(dict.fromkeys(entry["command"] for entry in made))
    versions = made[0]["versions"]
    cost = f"{float(about['cpu_seconds']):,.0f} CPU seconds, " if about["cpu_seconds"] else ""
    where = f"{cost}{made[0]['devices']}, jax {versions['jax']}, kept on {about['kept']}."
    picture = f"![{LABELS[shown.measure]} against {shown.clock}](images/paper_{name}.png)"
    return f"{picture}\n\n```bash\n{commands}\n```\n\n{where}\n\n" + (
        table(["policy", "seeds", *(unit.format(mark) for mark in at)], rows)
    )


def fill(text: str, name: str, content: str) -> str:
    """Replaces the content between a page's markers of a name; a page without them stays as it is."""
    begin, end = f"<!-- {name} -->", f"<!-- end of {name} -->"
    if begin not in text:
        return text
    before, rest = text.split(begin, 1)
    return f"{before}{begin}\n\n{content}\n\n{end}{rest.split(end, 1)[1]}"


def page(results: Path, document: Path, images: Path) -> None:
    """Draws every figure that has a file, and writes the tables of the figures and claims into the page."""
    kept = {name: read(path) for name in FIGURES if (path := results / f"{name}.parquet").exists()}
    judged = claims(kept)
    text = fill(document.read_text(encoding="utf-8"), "claims", judged)
    for name, (found, about) in kept.items():
        draw(found, FIGURES[name], images / f"paper_{name}.png")
        text = fill(text, name, levels(name, found, about))
    document.write_text(text, encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(dest="command", required=True)
    keeping = commands.add_parser("keep")
    keeping.add_argument("name")
    keeping.add_argument("folders", nargs="+", type=Path, metavar="DIR")
    keeping.add_argument("--add", action="store_true", help="add to the runs in the figure's file")
    keeping.add_argument("--cpu", type=float, help="CPU seconds that the results took")
    keeping.add_argument("--to", type=Path, default=DOCS / "results")
    making = commands.add_parser("page")
    making.add_argument("--results", type=Path, default=DOCS / "results")
    making.add_argument("--page", type=Path, default=DOCS / "reproduction.md")
    making.add_argument("--images", type=Path, default=DOCS / "images")
    options = parser.parse_args()
    if options.command == "keep":
        path = keep(options.name, options.folders, options.cpu, options.to, options.add)
        print(f"{path}: {path.stat().st_size / 1000:,.0f} kB")
    else:
        page(options.results, options.page, options.images)


if __name__ == "__main__":
    main()
