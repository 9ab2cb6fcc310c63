"""Commands that read a study before its end, played by shards or stopped midway."""

import numpy as np
import pandas as pd
import pytest
import tomli_w

import pausejax
from pausejax import analysis
from pausejax.analysis import settings
from pausejax.commands import main as cli
from pausejax.page import tables

from ..faults import specs

MINE = """
from pathlib import Path
from pausejax import parts

with Path({marker!r}).open("a") as file:
    file.write("executed ")


@parts.quantity(reduce="mean", units="1")
def always_one(seen):
    'one in every round'
    import jax.numpy as jnp

    return 0.0 * jnp.max(seen.latency) + 1.0
"""
STUDIES = {
    "bandit": {**specs.BANDIT, "seeds": 3},
    "training": {**specs.TRAINING, "seeds": 3},
    "ensemble": {**specs.ENSEMBLE, "seeds": 3},
}


def written(folder, document):
    path = folder / "spec.toml"
    path.write_text(tomli_w.dumps(document))
    return str(path)


@pytest.mark.slow
@pytest.mark.parametrize("kind", STUDIES)
def test_what_a_shard_has_finished_is_in_the_final_result(kind, tmp_path, capsys):
    spec, out = written(tmp_path, STUDIES[kind]), tmp_path / "out"
    assert cli.main(["run", spec, "--out", str(out), "--shard", "1/2", "--quiet"]) == cli.OK
    found = pausejax.open(out, partial=True)
    assert cli.main(["report", str(out), "--partial", "--format", "csv"]) == cli.OK
    said, page = capsys.readouterr().out, (out / "report.html").read_text()
    assert found.attrs["partial"] in said and found.attrs["partial"] in page and "(unfinished)" in page
    assert all(path.name.startswith("partial_") for path in out.glob("*.csv")) and list(out.glob("*.csv"))
    assert cli.main(["best", str(out), "--partial"]) == cli.OK
    assert found.attrs["partial"] in capsys.readouterr().out
    assert cli.main(["export", str(out), "--partial", "--format", "csv"]) == cli.OK
    assert found.attrs["partial"] in capsys.readouterr().out
    assert pd.read_csv(out / "partial_runs.csv")["identity"].to_list() == found["identity"].values.tolist()

    assert cli.main(["run", spec, "--out", str(out), "--shard", "2/2", "--quiet"]) == cli.OK
    final = pausejax.open(out).load()
    runs, whole = found.sizes["run"], final.sizes["run"]
    assert found.attrs["partial"] == f"{runs} of {whole} runs are finished" and 0 < runs < whole
    same = final.isel(run=np.isin(final["identity"].values, found["identity"].values))
    for name in final.variables:
        there = tuple(slice(0, length) for length in found[name].shape)
        np.testing.assert_array_equal(found[name].values, same[name].values[there], err_msg=name)
        assert found[name].attrs == same[name].attrs and found[name].dtype.kind == same[name].dtype.kind
    assert found.variables.keys() == final.variables.keys()
    made = {"partial", "made"}
    assert {key: text for key, text in found.attrs.items() if key not in made} == {
        key: text for key, text in final.attrs.items() if key not in made
    }
    page = (out / "report.html").read_text()
    assert "(unfinished)" not in page and found.attrs["partial"] not in page


@pytest.mark.slow
def test_a_study_with_parts_of_its_own_is_read_without_them(tmp_path, monkeypatch):
    marker = tmp_path / "marker"
    (tmp_path / "mine.py").write_text(MINE.format(marker=str(marker)))
    document = {**specs.BANDIT, "use": ["mine.py"], "quantities": ["always_one"]}
    spec, out = written(tmp_path, document), tmp_path / "out"
    assert cli.main(["run", spec, "--out", str(out), "--shard", "1/2", "--quiet"]) == cli.OK
    before = marker.read_text()
    (tmp_path / "mine.py").unlink()
    found = pausejax.open(out, partial=True)
    assert (found["always_one"].values == 1).all() and marker.read_text() == before
    assert analysis.metrics_of(found)["always_one"].units == "1"


@pytest.mark.slow
def test_a_page_may_go_to_another_folder(tmp_path):
    spec, out = written(tmp_path, STUDIES["bandit"]), tmp_path / "out"
    assert cli.main(["run", spec, "--out", str(out), "--shard", "1/2", "--quiet"]) == cli.OK
    before = sorted(out.rglob("*"))
    elsewhere = str(tmp_path / "elsewhere")
    assert cli.main(["report", str(out), "--partial", "--out", elsewhere, "--quiet"]) == cli.OK
    assert cli.main(["export", str(out), "--partial", "--out", f"{elsewhere}/runs.csv", "--quiet"]) == cli.OK
    assert sorted(out.rglob("*")) == before
    assert sorted(path.name for path in (tmp_path / "elsewhere").iterdir()) == ["report.html", "runs.csv"]


@pytest.mark.slow
def test_a_call_that_was_interrupted_can_be_read(tmp_path):
    def stop(advanced):
        if list(tmp_path.glob("out/parts/*.npz")):
            raise KeyboardInterrupt

    study = {"rounds": 40, "mode": "bandit", "seeds": 2, "num_clients": 6, "clients_per_round": 2}
    with pytest.raises(KeyboardInterrupt):
        pausejax.simulate(["pause", "random"], **study, out=tmp_path / "out", progress=stop)
    found = pausejax.open(tmp_path / "out", partial=True)
    final = pausejax.simulate(["pause", "random"], **study, out=tmp_path / "out")
    assert found.attrs["partial"] == "2 of 4 runs are finished"
    same = final.isel(run=np.isin(final["identity"].values, found["identity"].values))
    for name in final.data_vars:
        np.testing.assert_array_equal(found[name].values, same[name].values)


@pytest.mark.slow
def test_unequal_numbers_of_seeds_are_said():
    whole = pausejax.simulate(
        ["pause", "random"], rounds=4, mode="bandit", seeds=4, num_clients=6, clients_per_round=2
    )
    even = analysis.summaries.summary_text(whole)
    assert "seeds" not in even.headings and even.title.endswith("over 4 seeds")
    keep = ~((whole["policy"].values == "random") & (whole["seed"].values > 0))
    uneven = whole.isel(run=keep)
    assert settings.seed_counts(uneven).tolist() == [4, 1]
    text = analysis.summaries.summary_text(uneven)
    assert text.headings[1] == "seeds" and [row[1] for row in text.rows] == ["4", "1"]
    assert text.title.endswith("over 1 to 4 seeds")
    assert any("1 to 4 seeds" in line for line in dict(tables.facts(uneven))["seeds"])
    table, _ = tables.differences(uneven)
    assert "over 1 seed," in table.caption
    apart = whole.isel(run=(whole["policy"].values == "random") == (whole["seed"].values > 1))
    assert analysis.summaries.summary_text(apart).title.endswith("over 2 seeds")
    table, notes = tables.differences(apart)
    assert table is None and any("can't be paired" in note for note in notes)
