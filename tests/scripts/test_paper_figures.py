"""`scripts/figures.py`: curves that are kept are those that were found, and claims are judged as it says."""

import json

import numpy as np
import pytest
import xarray as xr
from scipy import stats

from ..analysis import made_up
from ..programs import load

ROUNDS, EVALUATED = 40, np.arange(5, 41, 5)


@pytest.fixture(scope="module")
def script():
    return load("scripts/figures.py")


def study(folder, seeds, policies=("PAUSE", "SA-PAUSE", "random"), seed=0, evaluated=EVALUATED):
    """A result of made-up runs; PAUSE is 10 points ahead of random, which takes twice its time."""
    rng = np.random.default_rng(seed)
    rows = [(policy, seed) for seed in seeds for policy in policies]
    slow = np.array([1 + (policy == "random") for policy, _ in rows])[:, None]
    low = np.array([0.1 * (policy == "random") for policy, _ in rows])[:, None]
    shape = len(rows), ROUNDS
    result = xr.Dataset(
        {
            "elapsed": (("run", "round"), (slow * rng.uniform(0.4, 0.6, shape)).cumsum(1).astype("f4")),
            "max_leakage": (("run", "round"), rng.uniform(0.1, 0.3, shape).cumsum(1).astype("f4")),
            "test_accuracy": (
                ("run", "eval"),
                (rng.normal(0.6, 0.001, (len(rows), len(evaluated))) - low).astype("f4"),
            ),
        },
        {
            "policy": ("run", [p for p, _ in rows]),
            "algorithm": ("run", [p for p, _ in rows]),
            "seed": ("run", [s for _, s in rows]),
            "identity": ("run", [f"{p}{s}" for p, s in rows]),
            "round": np.arange(1, ROUNDS + 1),
            "eval_round": ("eval", evaluated),
        },
        {
            "axes": "[]",
            "mode": "training",
            "spec": "rounds = 40\n",
            "made": json.dumps(
                [
                    {
                        "command": f"pausejax run fig2.toml --out {folder} --lanes 2",
                        "devices": "2 × cpu",
                        "versions": {"jax": "0.0"},
                    }
                ]
            ),
        },
    )
    folder.mkdir()
    made_up.store(result, folder)
    return result


def test_curves_are_kept_as_they_are_whatever_pieces_they_come_in(script, tmp_path):
    first = study(tmp_path / "a", [3, 1])
    second = study(tmp_path / "b", [0, 2], ("PAUSE", "random"), seed=1)
    path = script.keep("fig2", [tmp_path / "a", tmp_path / "b"], 12.0, tmp_path / "results")
    found, about = script.read(path)
    assert {label: runs["seed"].values.tolist() for label, runs in found.items()} == {
        "PAUSE": [0, 1, 2, 3],
        "SA-PAUSE": [1, 3],
        "random": [0, 1, 2, 3],
    }
    assert about["cpu_seconds"] == "12" and json.loads(about["specs"]) == ["rounds = 40\n"]
    commands = [entry["command"] for entry in json.loads(about["made"])]
    assert commands == [f"pausejax run fig2.toml --out out/{name} --lanes 2" for name in "ab"]
    for label, runs in found.items():
        for place, seed in enumerate(runs["seed"].values):
            whole = first if seed in (3, 1) else second
            run = whole.isel(run=np.flatnonzero((whole["policy"] == label) & (whole["seed"] == seed))[0])
            for name in ("elapsed", "max_leakage"):
                np.testing.assert_array_equal(runs[name].values[place], run[name].values)
            np.testing.assert_array_equal(runs["eval_round"].values, EVALUATED)
            # Evaluated every 5 rounds, so that 10 rounds are two evaluations.
            plain = run["test_accuracy"].values.astype(float)
            plain[1:] = (plain[1:] + plain[:-1]) / 2
            np.testing.assert_allclose(runs["test_accuracy"].values[place], plain, rtol=1e-6)
    with pytest.raises(SystemExit, match="two runs have the same policy and seed"):
        script.keep("fig2", [tmp_path / "a", tmp_path / "a"], None, tmp_path / "results")


def test_every_accuracy_is_a_mean_over_ten_rounds_if_the_last_evaluation_is_early(script, tmp_path):
    whole = study(tmp_path / "a", [0], ("PAUSE",), evaluated=np.array([10, 20, 30, 35]))
    found, _ = script.read(script.keep("fig2", [tmp_path / "a"], None, tmp_path))
    np.testing.assert_array_equal(found["PAUSE"]["test_accuracy"].values, whole["test_accuracy"].values)


def test_pieces_may_come_later(script, tmp_path):
    study(tmp_path / "a", [3, 1])
    study(tmp_path / "b", [0, 2], ("PAUSE", "random"), seed=1)
    both = script.keep("fig2", [tmp_path / "a", tmp_path / "b"], 12.5, tmp_path / "at once")
    one = script.keep("fig2", [tmp_path / "a"], 5.0, tmp_path / "results")
    assert script.keep("fig2", [tmp_path / "b"], 7.5, tmp_path / "results", add=True) == one
    (found, about), (expected, said) = script.read(one), script.read(both)
    assert about == said and list(found) == list(expected)
    for label, runs in found.items():
        xr.testing.assert_identical(runs, expected[label])
    before = one.read_bytes()
    with pytest.raises(SystemExit, match="two runs have the same policy and seed"):
        script.keep("fig2", [tmp_path / "b"], None, tmp_path / "results", add=True)
    assert one.read_bytes() == before
    with pytest.raises(SystemExit, match=r"fig3 --add: there is no .*fig3\.parquet"):
        script.keep("fig3", [tmp_path / "b"], None, tmp_path / "results", add=True)


def test_a_claim_is_judged_by_its_pairs(script, tmp_path):
    study(tmp_path / "a", range(5))
    found, _ = script.read(script.keep("fig2", [tmp_path / "a"], None, tmp_path))
    shown = script.FIGURES["fig2"]
    count, gaps, holds = script.judge(found, shown, script.Claim("PAUSE", "random"))
    assert count == 5 and holds == "holds"
    last = found["PAUSE"]["elapsed"].values[:, -1].mean()
    for part, gap in zip(script.PARTS, gaps, strict=True):
        at = []
        for label in ("PAUSE", "random"):
            times = found[label]["elapsed"].values[:, EVALUATED - 1]
            reached = (times <= round(part * last)).sum(axis=1)
            accuracy = 100 * found[label]["test_accuracy"].values[np.arange(5), reached - 1]
            at.append(np.where(reached, accuracy, np.nan))
        plain = at[0] - at[1]
        half = stats.t.ppf(0.975, 4) * plain.std(ddof=1) / np.sqrt(5)
        if not np.isfinite(plain).all():  # random has not been evaluated by then
            assert gap == "–"
            continue
        assert gap == f"{plain.mean():+.1f} ± {half:.1f}"
    assert script.judge(found, shown, script.Claim("random", "PAUSE"))[2] == "**does not hold**"
    assert script.judge(found, shown, script.Claim("SA-PAUSE", "PAUSE", "≈"))[2] == "holds"


def test_verdicts(script):
    up, down, near = np.array([3.0, 3.1, 2.9]), np.array([-3.0, -3.1, -2.9]), np.array([-0.1, 0.1, 0.0])
    assert script.verdict([up, up], ">") == "holds"
    assert script.verdict([down, down], "<") == "holds"
    assert script.verdict([up, near], ">") == "not beyond doubt"
    assert script.verdict([np.array([np.nan, 1.0, 2.0]), up], ">") == "holds"
    assert script.verdict([up, down], ">") == "**does not hold**"
    assert script.verdict([up, down], "<") == "**does not hold**"
    assert script.verdict([near, near], "≈") == "holds"
    assert script.verdict([near, up], "≈") == "**does not hold**"
    assert script.verdict([np.array([-4.0, 4.0])], "≈") == "not beyond doubt"
    assert script.verdict([np.zeros(3)], "=") == "holds"
    assert script.verdict([np.zeros(3), near], "=") == "**does not hold**"


def test_a_page_is_made_of_what_is_kept_again_and_again(script, tmp_path):
    study(tmp_path / "a", range(3))
    script.keep("fig2", [tmp_path / "a"], None, tmp_path)
    page = tmp_path / "reproduction.md"
    sections = "\n".join(f"<!-- {name} -->\n<!-- end of {name} -->" for name in ("claims", "fig2", "fig3"))
    page.write_text(f"before\n\n{sections}\n\nafter\n")
    script.page(tmp_path, page, tmp_path)
    made = page.read_text()
    assert made.startswith("before\n") and made.endswith("after\n")
    assert "| 2 | PAUSE > random, points | 3 | – | +10.0" in made and "SA-PAUSE ≈ PAUSE" in made
    assert "clustered" not in made and "<!-- fig3 -->\n<!-- end of fig3 -->" in made
    assert (tmp_path / "paper_fig2.png").read_bytes()[1:4] == b"PNG"
    script.page(tmp_path, page, tmp_path)
    assert page.read_text() == made


def test_leakage_is_that_of_the_rounds_that_have_ended(script):
    runs = xr.Dataset(
        {
            "elapsed": (("run", "round"), np.array([[1.0, 2, 3], [2, 4, 6]])),
            "max_leakage": (("run", "round"), np.array([[5.0, 6, 7], [1, 2, 3]])),
        },
        {"seed": ("run", [0, 1])},
    )
    time, rounds = script.FIGURES["fig5"], script.FIGURES["fig3"]
    assert script.values(runs, time, 0.5).tolist() == [0, 0]
    assert script.values(runs, time, 2.0).tolist() == [6, 1]
    assert script.values(runs, time, 9.0).tolist() == [7, 3]
    assert script.values(runs, rounds, 2).tolist() == [6, 2]
    assert script.values(runs, rounds, 30).tolist() == [7, 3]


@pytest.mark.slow
def test_equal_policies_seldom_fail_a_claim(script):
    """Of 1,000 claims of four independent marks 25 fail on one side; 45 with a probability of 1e-4."""
    rng = np.random.default_rng(0)
    for relation in "><":
        said = [script.verdict(list(rng.normal(size=(4, 3))), relation) for _ in range(1000)]
        assert said.count("**does not hold**") < 45, relation
