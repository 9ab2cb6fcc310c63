"""Results that a stranger has made up: one line or a page, in bounded memory and time."""

import json
import math
import shutil
import subprocess
import sys

import numpy as np
import pytest

import pausejax
from pausejax.analysis import schema, soundness
from pausejax.analysis.metrics import REDUCTIONS
from pausejax.analysis.quantities import as_json
from pausejax.commands import main as cli
from pausejax.results import manifest
from pausejax.results.folder import Folder
from pausejax.results.sealed import write_sealed
from pausejax.searches.report import Record
from pausejax.searches.search_file import RECORD

from . import forged
from .test_mutations import call


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A folder with a sound result in it, and the result."""
    folder = tmp_path_factory.mktemp("forged")
    return folder, forged.base(folder)


def test_what_the_package_writes_is_sound(place):
    folder, result = place
    soundness.check(result)
    assert pausejax.open(folder / forged.NAME).sizes == result.sizes
    pausejax.kinds.charts(result, measures=["elapsed"])


def changed(result, name, *keys_and_value):
    """A result with another value within an attribute that is JSON."""
    *keys, value = keys_and_value
    held = json.loads(result.attrs[name])
    inner = held
    for key in keys[:-1]:
        inner = inner[key]
    inner[keys[-1]] = value
    return result.assign_attrs({name: json.dumps(held)})


SHOWN = ("metrics", "elapsed", "shown")


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ((*SHOWN, "300000000.1f"), "attribute metrics: 'elapsed': shown: must be a number format"),
        ((*SHOWN, ".999999999f"), "attribute metrics: 'elapsed': shown: must be a number format"),
        ((*SHOWN, "+.1f"), "attribute metrics: 'elapsed': shown: must be a number format"),
        ((*SHOWN, ["x"]), "attribute metrics: 'elapsed': shown: must be a number format"),
        (("metrics", "../../../escaped", {}), "attribute metrics: '../../../escaped': must be a name"),
        (("metrics", "elapsed", "scale", math.nan), "scale: must be a finite number"),
        (("metrics", "elapsed", "scale", 10**400), "scale: must be a finite number"),
        (("metrics", "elapsed", "scale", True), "scale: must be a finite number"),
        (("metrics", "elapsed", "reduce", "eval"), "reduce: must be one of last, at_end, rounds_played"),
        (
            ("metrics", "elapsed", "reduce", "itself"),
            "metric elapsed: 'itself' must give one number per run, but elapsed",
        ),
        (
            ("metrics", "elapsed", "variable", "policy"),
            "metric elapsed: 'last' must give one number per run, but policy",
        ),
        (("metrics", "elapsed", "label", "\ud800"), "label: must not contain control characters"),
        (("metrics", "elapsed", "label", "\x1b[31m"), "label: must not contain control characters"),
        (("metrics", "elapsed", "heading", "x" * 10_001), "heading: must have at most 10000 characters"),
        (("metrics", "elapsed", "maximize", 1), "maximize: must be true or false or null"),
        (
            ("metrics", "elapsed", "colour", "red"),
            "'colour': is no known key; must be one of variable, reduce",
        ),
        (("metrics", "elapsed", {}), "attribute metrics: 'elapsed': must have maximize"),
        (("metrics", "elapsed", "scaled_by", [[]]), "scaled_by: 0: must be a name"),
        (("objectives", 0, "nothing"), "attribute objectives: must name three metrics"),
        (("parameters", "num_clients", [["K"], 3]), "attribute parameters: 'num_clients': must be text"),
        (("apart", 0, {}), "attribute apart: 0: must be a name"),
    ],
)
def test_what_a_result_says_of_itself_is_checked(place, path, said):
    with pytest.raises(ValueError) as raised:
        soundness.check(changed(place[1], *path))
    assert said in str(raised.value) and str(raised.value).isprintable()


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("axes", json.dumps([f"n{n}" for n in range(100_000)]), "must have at most 1000 entries, not 100000"),
        ("axes", json.dumps(["a", "a"]), "must not have an entry twice"),
        ("axes", "[" * 100_000, "nested less deeply"),
        ("axes", "nothing", "must be JSON"),
        ("axes", "9" * 5000, "must be JSON"),
        ("axes", 5, "must be text"),
        ("made", json.dumps([{"command": 3, "devices": "", "versions": {}}]), "0: command: must be text"),
        ("name", "a\nb", "must not contain control characters"),
        ("name", 5, "must be text, not int"),
        ("ranking", "nothing", "must be a metric whose variable the result has"),
        ("spec", "x" * (2**24 + 1), "must have at most 16777216 characters"),
        ("format", "2", "must be an integer"),
    ],
)
def test_an_attribute_has_bounds(place, name, value, said):
    with pytest.raises(ValueError, match=f"result: attribute {name}: .*{said}"):
        soundness.check(place[1].assign_attrs({name: value}))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda r: r.drop_vars("policy"), "must have the coordinate policy"),
        (lambda r: r.assign_coords(seed=("run", np.full(r.sizes["run"], 0.5))), "seed is float64 over run"),
        (
            lambda r: r.assign_coords(policy=("run", np.full(r.sizes["run"], "\x1b[2J"))),
            "policy: a label must not contain",
        ),
        (lambda r: r.assign_coords(num_clients=5), "num_clients is int64 over no dimension"),
        (lambda r: r.assign_coords(round=r["round"] * 0), "round: must be ascending numbers from 1"),
        (
            lambda r: r.assign_coords(eval_round=r["eval_round"] + 10**6),
            "eval_round: must contain only rounds of the",
        ),
        (lambda r: r.assign(elapsed=r["elapsed"] * 1j), "elapsed is complex"),
        (lambda r: r.assign(elapsed=r["elapsed"].astype(str)), "elapsed is <U"),
        (lambda r: r.assign(elapsed=r["elapsed"].T), "elapsed is float32 over round, run"),
        (lambda r: r.rename(regret="../../escaped"), "a variable's name must be a name"),
        (lambda r: r.isel(run=slice(0)), "must have one run or more"),
    ],
)
def test_coordinates_and_variables_are_checked(place, change, said):
    with pytest.raises(ValueError, match="result: ") as raised:
        soundness.check(change(place[1]))
    assert said in str(raised.value)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (
            lambda r: r.assign_attrs(kind="nobody"),
            "attribute kind: must be one of clients, ensemble, not nobody",
        ),
        (lambda r: r.drop_vars("selected"), "must have selected, which its charts need"),
        (
            lambda r: r.assign_coords(min_latency=("run", ["a"] * r.sizes["run"])),
            "min_latency is <U1 over run; must be numbers over run",
        ),
        (
            lambda r: r.assign(counts=r["seed"]),
            "counts is int64 over run; must be numbers or words over run, client",
        ),
    ],
)
def test_what_charts_need_is_checked(place, change, said):
    with pytest.raises(ValueError, match="result: ") as raised:
        pausejax.kinds.charts(change(place[1]))
    assert said in str(raised.value)


def test_charts_of_what_is_missing_are_left_out(place):
    result = place[1]
    found = set(pausejax.charts(result))
    for name in set(result.data_vars) - {"elapsed", "max_leakage", "selected", "counts", "diverged_round"}:
        assert set(pausejax.charts(result.drop_vars(name))) <= found
    assert "cumulative_regret_vs_round" not in pausejax.charts(result.drop_vars("regret"))


def test_a_unit_is_no_date(place, tmp_path):
    result = place[1].copy()
    result["regret"].attrs["units"] = "days since 2000-01-01"
    forged.store(result, tmp_path)
    np.testing.assert_array_equal(pausejax.open(tmp_path)["regret"], result["regret"])


def test_an_array_that_is_not_there_takes_no_memory(place, tmp_path):
    forged.store(place[1], tmp_path)
    described = tmp_path / "results.zarr" / "zarr.json"
    held = json.loads(described.read_text())
    for name in ("selected", "counts", "client"):
        held["consolidated_metadata"]["metadata"][name]["shape"][-1] = 10**12
    described.write_text(json.dumps(held))
    manifest.seal(Folder(tmp_path), "results.zarr")
    with pytest.raises(ValueError, match=r"results\.zarr/\w+: the shape \[.*1000000000000\] needs .* chunks"):
        pausejax.open(tmp_path)


def changed_record(path, value):
    """The record of a search with another value within it."""
    metric = {"name": "elapsed", "label": "time", "scale": 1.0, "shown": ".1f", "maximize": False}
    trial = {"number": 0, "policy": "a", "values": {"x": 1.0}, "rounds": 3, "broken": False}
    held = {
        **dict.fromkeys(("name", "asked", "summary", "title"), "words"),
        "runs": ["a"],
        "metrics": [metric],
        "dimensions": [{"name": "x", "symbol": "", "log": False}],
        "trials": [{**trial, "figures": {"elapsed": 0.0}}],
        "headings": ["setting"],
        "finalists": [["a"]],
    }
    inner = held
    for key in path[:-1]:
        inner = inner[key]
    inner[path[-1]] = value
    return held


@pytest.mark.parametrize(
    ("path", "value", "said"),
    [
        (("metrics", 0, "shown"), "300000000.1f", "metrics: 0: shown: must be a number format"),
        (("metrics", 0, "scale"), "1", "metrics: 0: scale: must be a finite number"),
        (("dimensions", 0, "name"), "../x", "dimensions: 0: name: must be a name"),
        (("trials", 0, "figures"), {}, "trials: 0: must have a value for each metric"),
        (("trials", 0, "values"), {"x": []}, "trials: 0: values: 'x': must be"),
        (
            ("trials", 0, "values"),
            {"x": 10**400},
            "trials: 0: values: 'x': must be true or false or an integer",
        ),
        (
            ("trials", 0, "figures"),
            {"elapsed": 10**400},
            "figures: 'elapsed': must be an integer or a number or null",
        ),
        (("trials", 0, "rounds"), 10**400, "rounds: must be an integer, not an integer of many digits"),
        (("dimensions",), [{"name": "x", "symbol": "", "log": False}] * 101, "at most 100 entries, not 101"),
        (("headings",), "x", "headings: must be a list"),
        (("name",), "\x00", "name: must not contain control characters"),
    ],
)
def test_the_record_of_a_search_is_checked(tmp_path, path, value, said):
    folder = Folder(tmp_path)
    write_sealed(folder, RECORD, changed_record(("name",), "fine"))
    assert Record.read(folder).trials[0].figures == {"elapsed": 0.0}
    write_sealed(folder, RECORD, changed_record(path, value))
    with pytest.raises(ValueError, match=r"search_record\.json is damaged") as raised:
        Record.read(folder)
    assert said in str(raised.value)


def test_every_way_to_make_a_figure_may_be_named():
    assert set(schema.REDUCTIONS) == set(REDUCTIONS)


def test_every_number_format_of_the_package_may_be_read():
    from pausejax.clients import variables as clients
    from pausejax.ensemble import variables as ensemble

    for metrics in (clients.METRICS, ensemble.METRICS):
        held = json.loads(as_json(metrics))
        assert not schema.problem("metrics", held)


@pytest.mark.slow
def test_a_few_forged_results(place):
    folder, result = place
    for seed in (*range(6), 24):  # 24: a format of 100,000 characters
        out, what = forged.forge(folder, result.copy(), seed)
        assert not (wrong := forged.read(out, draw=False)), (seed, what, wrong)
        shutil.rmtree(out)


def test_a_forged_result_is_one_line_of_every_command(place):
    folder, result = place
    out = folder / "one"
    forged.store(changed(result, *SHOWN, "300000000.1f"), out)
    for command in (["report"], ["best"], ["export", "--format", "csv"]):
        code, _, err, trace = call([command[0], str(out), *command[1:]])
        assert (code, trace) == (cli.FAILED, "") and err.count("\n") == 1 and "attribute metrics" in err


@pytest.mark.slow
def test_forged_results_are_one_line_or_a_page(request, tmp_path):
    count = request.config.getoption("--forgeries")
    first = request.config.getoption("--first-seed")
    command = [sys.executable, "-m", "tests.faults.forged", str(tmp_path), str(first), str(count)]
    done = subprocess.run(command, capture_output=True, text=True)
    told = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(told) == count, done.stderr[-3000:]
    assert not [one for one in told if one["wrong"]]
    print(f"{count} forged results: {sum(one['page'] for one in told)} pages")
