"""`pausejax report`, and what `run` leaves beside a result: the page, and charts that are asked for."""

import os
import re
import shutil

import pandas as pd
import pytest

import pausejax
from pausejax import analysis
from pausejax.commands import main as cli
from pausejax.commands.options import conditions
from pausejax.commands.report import within
from pausejax.execution import tracking

from ..analysis.made_up import build, store

AXES = {"generalization_weight": "alpha", "privacy_weight": "gamma"}
BOTH = {"generalization_weight": [1.0, 10.0, 100.0], "privacy_weight": [0.1, 1.0, 5.0, 25.0]}


@pytest.fixture(scope="module")
def swept():
    """α (3) by γ (4) by two policies: 24 settings, 2 seeds."""
    return build({"pause": BOTH, "uniform": BOTH}, 2, AXES, "bandit")[0].load()


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    """A folder with a small study of two policies, and nothing else."""
    folder = tmp_path_factory.mktemp("small")
    store(build({"pause": {}, "uniform": {}}, 3, {}, "bandit")[0], folder)
    return folder


@pytest.fixture
def study(small):
    """The same; what a test leaves in it is removed."""
    before = set(small.iterdir())
    yield small
    for path in set(small.iterdir()) - before:
        path.unlink()


def left(folder):
    """What stands in a folder beside the result."""
    return {path.name for path in folder.iterdir()} - {"results.zarr", "results.zarr.json"}


@pytest.mark.slow
def test_report_leaves_the_page_and_no_picture(study, capsys):
    before = left(study)
    assert cli.main(["report", str(study)]) == cli.OK
    assert left(study) - before == {"report.html"}
    assert "the page with all charts: " in " ".join(capsys.readouterr().out.split())
    assert (study / "report.html").read_text().startswith("<!")
    assert cli.main(["report", str(study), "--quiet"]) == cli.OK
    assert capsys.readouterr() == ("", "")


@pytest.mark.slow
def test_charts_are_written_by_name_format_and_size(study, capsys):
    before, name = left(study), "max_leakage_vs_time"
    asked = ["--format", "pdf", "--format", "csv", "--chart", name, "--width", "3.5"]
    assert cli.main(["report", str(study), *asked]) == cli.OK
    assert left(study) - before == {"report.html", f"{name}.pdf", f"{name}.csv"}
    box = re.search(rb"/MediaBox \[([^\]]*)\]", (study / f"{name}.pdf").read_bytes())[1].split()
    assert float(box[2]) == pytest.approx(3.5 * 72, abs=0.3)
    expected = pausejax.charts(pausejax.open(study))[name].to_dataframe()
    assert pd.read_csv(study / f"{name}.csv")["y"].to_numpy() == pytest.approx(expected["y"].to_numpy())
    assert f"{name}.pdf, {name}.csv" in " ".join(capsys.readouterr().out.split())
    # A chart without a format is for a paper.
    assert cli.main(["report", str(study), "--chart", "participation", "--quiet"]) == cli.OK
    assert (study / "participation.pdf").exists() and not (study / "participation.png").exists()


@pytest.mark.slow
def test_charts_of_an_earlier_result_are_named(study, tmp_path, capsys):
    """A study that is extended has other charts; trackers get no old ones."""
    chart = pausejax.charts(pausejax.open(study))["participation"]
    for name in ("participation.csv", "participation.json", "old.png", "new.png"):
        (study / name).write_bytes(chart.encode(name.rpartition(".")[2]))
    (study / "trace.csv").write_text("1,2\n")
    for path in study.iterdir():
        if path.is_file() and path.name != "new.png":
            os.utime(path, (1, 1))
    assert cli.main(["report", str(study)]) == cli.OK
    said = " ".join(capsys.readouterr().out.split())
    assert "older than the result: old.png, participation.csv, participation.json" in said

    shutil.copy2(study / "old.png", tmp_path)  # with its time
    assert cli.main(["report", str(study), "--out", str(tmp_path)]) == cli.OK
    said = " ".join(capsys.readouterr().out.split())
    assert f"in {study}, older than the result: old.png, " in said
    assert f"in {tmp_path}, older than the result: old.png" in said

    class Keeping(tracking.Tracker):
        def attach(self, files):
            self.names = {file.name for file in files}

    tracker = Keeping()
    tracking.attach_files(tracker, str(study))
    assert tracker.names - {"spec.toml"} == {"report.html", "new.png"}


def test_every_chart_is_written_where_none_is_named(study):
    before = left(study)
    assert cli.main(["report", str(study), "--format", "json", "--quiet"]) == cli.OK
    names = {f"{name}.json" for name in pausejax.charts(pausejax.open(study))}
    assert left(study) - before == {"report.html", *names}


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--chart", "max_leakage_vs_tim"], "--chart max_leakage_vs_tim: must be one of "),
        (["--chart", "../escaped"], "--chart ../escaped: must be one of"),
        (["--baseline", "nobody"], "--baseline"),
    ],
)
def test_what_is_not_there_is_one_line(study, capsys, options, said):
    before = left(study)
    assert cli.main(["report", str(study), *options]) == cli.BAD_SPEC
    problem = capsys.readouterr().err
    assert said in problem and problem.count("\n") == 1 and "Traceback" not in problem
    assert left(study) == before


@pytest.mark.parametrize(
    "options",
    [
        *(["--format", "jpg"], ["--format"], ["--width", "abc"], ["--width", "0"], ["--height", "nan"]),
        *(["--width", "1e9"], ["--smooth", "0"], ["--by", "a,,b"]),
    ],
)
def test_what_can_be_no_option_exits_with_2(study, capsys, options):
    with pytest.raises(SystemExit) as stop:
        cli.main(["report", str(study), *options])
    assert stop.value.code == 2 and "usage: pausejax" in capsys.readouterr().err


def test_a_size_without_room_is_one_line(study, capsys):
    asked = ["--chart", "participation", "--format", "pdf", "--width", "0.5", "--height", "0.5"]
    assert cli.main(["report", str(study), *asked]) == cli.FAILED
    problem = capsys.readouterr().err
    assert "0.5 by 0.5 inches are too small for its labels" in problem and problem.count("\n") == 1


def test_a_baseline_may_be_any_policy(study):
    assert cli.main(["report", str(study), "--baseline", "uniform", "--quiet"]) == cli.OK
    assert "Difference from uniform" in (study / "report.html").read_text()


@pytest.mark.slow
def test_report_takes_measures_runs_and_axes(swept, tmp_path, capsys):
    store(swept, tmp_path)
    options = ["--measure", "reward", "pseudo_regret", "--where", "gamma=5,gamma=25", "--by", "γ,policy"]
    missing = cli.main(["report", str(tmp_path), *options])
    problem = capsys.readouterr().err
    assert (
        missing == cli.BAD_SPEC and problem.count("\n") == 1 and "measure: reward: must be one of" in problem
    )
    options = [*options[:1], *options[2:], "--format", "png"]
    assert cli.main(["report", str(tmp_path), *options]) == cli.OK
    said = " ".join(capsys.readouterr().out.split())
    assert "cumulative_pseudo_regret_vs_time.png" in said and "curves are means over α too" in said
    asked = tmp_path / "measure_pseudo_regret_where_gamma_5_gamma_25_by_γ_policy"
    assert (asked / "heatmap_cumulative_pseudo_regret_pause.png").read_bytes()[1:4] == b"PNG"
    assert not (asked / "max_leakage_vs_round.png").exists()
    for wrong in ("gamma", "gamma=", "=5"):
        with pytest.raises(SystemExit):
            cli.main(["report", str(tmp_path), "--where", wrong])
        assert "must be a condition KEY=VALUE" in capsys.readouterr().err


@pytest.mark.slow
def test_what_is_asked_for_leaves_the_page_of_the_whole_study_as_it_is(swept, tmp_path, capsys):
    store(swept, tmp_path)
    (tmp_path / "report.html").write_text("of the whole study")
    (tmp_path / "elapsed_vs_round.png").write_bytes(b"of the whole study")
    asked = ["--measure", "elapsed", "--where", "gamma=5,policy=pause"]
    assert cli.main(["report", str(tmp_path), *asked, "--format", "png"]) == cli.OK
    assert (tmp_path / "report.html").read_text() == "of the whole study"
    assert (tmp_path / "elapsed_vs_round.png").read_bytes() == b"of the whole study"
    own = tmp_path / "measure_elapsed_where_gamma_5_policy_pause"
    assert f"{own.name}/report.html" in "".join(capsys.readouterr().out.split())
    html = (own / "report.html").read_text()
    assert "this page shows a selection: --measure elapsed --where gamma=5,policy=pause" in html
    runs = analysis.select(swept, {"gamma": 5, "policy": "pause"}).sizes["run"]
    assert f"runs: {runs}, of 1 policy" in html and (own / "elapsed_vs_round.png").exists()
    (tmp_path / "where_gamma_1").symlink_to(tmp_path.parent)
    assert cli.main(["report", str(tmp_path), "--where", "gamma=1"]) == cli.FAILED
    assert "must not be a link. Nothing was written" in capsys.readouterr().err


def test_run_refuses_what_it_could_not_draw_before_it_computes(tmp_path, capsys):
    spec = tmp_path / "spec.toml"
    spec.write_text(
        'mode = "bandit"\nrounds = 10\n[reward]\ngamma = [1.0, 5.0]\n[[policy]]\nname = "pause"\n'
    )
    out = tmp_path / "out"
    for options, message in (
        (["--by", "kappa"], "--by: 'kappa': is no axis of this result"),
        (["--measure", "test_accuracy"], "--measure: test_accuracy"),
        (["--where", "gamma=3"], "--where: gamma = 3: no run has this value; did you mean 1? known: 1, 5"),
    ):
        assert cli.main(["run", str(spec), "--out", str(out), *options]) == cli.BAD_SPEC
        assert message in capsys.readouterr().err
        assert not out.exists()


def test_conditions_may_hold_commas():
    assert conditions("policy=PAUSE, exact,gamma=5") == {"policy": ["PAUSE, exact"], "gamma": ["5"]}


@pytest.mark.slow
def test_words_and_numbers_in_one_column_are_written_as_csv(tmp_path):
    """Panels of main effects go over words and over numbers."""
    words = [f"w{place}" for place in range(6)]
    made = build(
        {"pause": {"latency": words, "privacy_weight": [1.0, 5.0, 25.0]}},
        1,
        {**AXES, "latency": "latency"},
        "bandit",
    )
    store(made[0], tmp_path)
    assert cli.main(["report", str(tmp_path), "--format", "csv", "--quiet"]) == cli.OK
    table = pd.read_csv(tmp_path / "main_effects_max_leakage.csv")
    assert {*words, "1.0", "5.0", "25.0"} <= set(table["x"].astype(str))


def test_the_baseline_is_one_of_what_is_asked_for(tmp_path, capsys):
    """Of one policy its settings are compared."""
    store(build({"pause": {"privacy_weight": [1.0, 5.0]}, "uniform": {}}, 3, AXES, "bandit")[0], tmp_path)
    asked = ["report", str(tmp_path), "--quiet", "--where", "policy=pause", "--baseline"]
    assert cli.main([*asked, "pause, γ = 5"]) == cli.OK
    assert "Difference from pause, γ = 5" in (tmp_path / "where_policy_pause" / "report.html").read_text()
    assert cli.main([*asked, "pause"]) == cli.BAD_SPEC
    assert "--baseline = 'pause': must be one of 'pause, γ = 5', 'pause, γ = 1'" in capsys.readouterr().err


LONG = "--measure pseudo_regret --where policy=alpha,policy=beta,policy=gamma"


@pytest.mark.parametrize(
    "requests",
    [
        ("--where total=-1", "--where total=1"),
        ("--where x=0.5", "--where x=0,5"),
        ("--where policy=a_b", "--where policy=a b", "--where policy=a-b"),
        (f"{LONG},policy=delta", f"{LONG},policy=epsilon"),
        ("--where word=", "--where word=[b]"),
        ("--where γ=1e-05", "--where γ=1e05"),
    ],
)
def test_no_two_requests_share_a_folder(tmp_path, requests):
    folders = {within(str(tmp_path), words) for words in requests}
    assert len(folders) == len(list(tmp_path.iterdir())) == len(requests)


def test_plain_requests_have_plain_names(tmp_path):
    found = within(str(tmp_path), "--measure pseudo_regret --where γ=5,policy=PAUSE --by policy")
    assert found == f"{tmp_path}/measure_pseudo_regret_where_γ_5_policy_PAUSE_by_policy"
