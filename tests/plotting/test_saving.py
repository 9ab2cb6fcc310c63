"""Charts as files: every format, sizes in inches, and files that are there whole or not at all."""

import io
import json
import os
import re
import resource

import numpy as np
import pandas as pd
import pytest

from pausejax.plotting import FORMATS
from pausejax.plotting.chart import Chart
from pausejax.plotting.data import Axis, Panel, Series, check_name, file_names

from .every_kind import charts

COLUMNS = ["panel", "series", "name", "x", "y", "low", "high", "color"]


def of(kind="regret_vs_round", labels=("PAUSE", "random")):
    return Chart(**vars(charts(labels)[kind]))


@pytest.fixture
def full():
    """Makes a disk on which no file may be larger than so many bytes."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    yield lambda size: resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["regret_vs_round", "heatmap_time", "pareto"])
def test_a_chart_is_saved_in_the_format_of_its_ending(tmp_path, kind):
    chart = of(kind)
    for format in FORMATS:
        chart.save(tmp_path / f"c.{format}")
    read = {format: (tmp_path / f"c.{format}").read_bytes() for format in FORMATS}
    assert read["png"][:4] == b"\x89PNG" and read["pdf"][:4] == b"%PDF" and b"<svg" in read["svg"]
    assert "$schema" in json.loads(read["json"])
    frame = pd.read_csv(io.BytesIO(read["csv"]))
    assert list(frame.columns) == COLUMNS and len(frame) == len(chart.to_dataframe())
    # The same chart is the same file, and none says when it was made.
    assert all(chart.encode(format) == read[format] for format in FORMATS)
    assert b"CreationDate" not in read["pdf"] and b"<dc:date>" not in read["svg"]
    # Letters of a kind that journals take and readers can copy.
    assert b"Type3" not in read["pdf"] and b"/FontFile2" in read["pdf"]
    for ending in ("c", "c.jpg", "c.PNG", "c.png.gz"):
        with pytest.raises(ValueError, match="must be one of png, pdf, svg, csv, json"):
            chart.save(tmp_path / ending)
    assert len(list(tmp_path.iterdir())) == len(FORMATS)


@pytest.mark.slow
@pytest.mark.parametrize(("width", "height"), [(3.5, 2.0), (7.0, 4.25), (5.0, None)])
@pytest.mark.parametrize("kind", ["regret_vs_round", "participation"])
def test_width_and_height_are_in_inches(kind, width, height):
    png = of(kind).encode("png", width, height)
    across, up = (int.from_bytes(png[at : at + 4], "big") / 300 for at in (16, 20))
    pdf = of(kind).encode("pdf", width, height)
    box = [float(number) / 72 for number in re.search(rb"/MediaBox \[([^\]]*)\]", pdf)[1].split()]
    assert across == pytest.approx(width, abs=0.004) and box[:3] == pytest.approx([0, 0, width], abs=0.004)
    assert up == pytest.approx(height or up, abs=0.004) and box[3] == pytest.approx(up, abs=0.005)


def test_a_size_without_room_for_labels_is_refused():
    for kind in ("regret_vs_round", "participation"):
        with pytest.raises(ValueError, match=f"{kind}: 0.5 by 0.5 inches are too small for its labels"):
            of(kind).encode("png", 0.5, 0.5)


def test_numbers_of_panels_without_titles_say_their_axes():
    cells = [np.arange(4.0).reshape(2, 2), np.arange(6.0).reshape(2, 3)]
    names = [tuple("abc")[: grid.shape[1]] for grid in cells]
    upwards = Axis("y", names=("low", "high"))
    panels = [Panel(Axis(x, names=names[i]), upwards, cells=cells[i]) for i, x in enumerate("xz")]
    frame = Chart("c", "c", tuple(panels)).to_dataframe()
    for panel, name in zip(panels, ("y against x", "y against z"), strict=True):
        np.testing.assert_array_equal(frame[frame["panel"] == name]["color"], panel.cells.ravel())


def test_the_numbers_are_those_that_are_drawn():
    frame = of().to_dataframe()
    for one in of().panels[0].series:
        own = frame[frame["series"] == one.label]
        for name in ("x", "y", "low", "high"):
            np.testing.assert_array_equal(own[name], getattr(one, name))
        assert own["color"].isna().all()
    chart = of("heatmap_time")
    cells = chart.to_dataframe()
    for place, panel in enumerate(chart.panels):
        mine = cells.iloc[6 * place : 6 * place + 6]
        for row, value in zip(mine.itertuples(), panel.cells.ravel(), strict=True):
            at = panel.y.names.index(row.y), panel.x.names.index(row.x)
            np.testing.assert_array_equal([row.color, panel.cells[at]], value)
    front = of("pareto").to_dataframe()
    assert front["name"][0].startswith("PAUSE, κ = ") and front["color"].notna().sum() == 29


def test_no_cell_of_csv_is_a_formula():
    """In any column of words: the panel, the series, the name of a point, the place on an axis."""
    evil = "=cmd|' /C calc'!A0"
    points = Series(evil, np.zeros(1), np.ones(1), names=(f"@{evil}",))
    panel = Panel(Axis("x", names=(f"+{evil}",)), Axis("y"), (points,), title=f"-{evil}")
    written = Chart("c", evil, (panel,)).encode("csv").decode()
    frame = pd.read_csv(io.StringIO(written))
    words = [str(cell) for cell in frame.iloc[0]]
    assert not any(word[0] in "=@+\t\r" or (word[0] == "-" and "cmd" in word) for word in words)
    assert frame["series"][0] == f"'{evil}" and frame["y"][0] == 1


@pytest.mark.slow
@pytest.mark.parametrize("format", FORMATS)
def test_a_full_disk_is_one_error_whatever_was_being_written(format, full, tmp_path):
    chart, path = of(), tmp_path / f"picture.{format}"
    chart.save(path)
    whole = path.read_bytes()
    for size in np.linspace(0, len(whole) - 1, 4, dtype=int).tolist():
        full(size)
        with pytest.raises(OSError, match="too large"):
            chart.save(path)
        assert path.read_bytes() == whole and os.listdir(tmp_path) == [path.name]


def test_names_of_files_are_of_the_programs_letters():
    labels = ["../../etc", "a b", "a_b", "A b", "$$$", "///", "α" * 300, "x" * 300, "a b"]
    names = file_names(labels)
    assert names[:6] == ["etc", "a_b", "a_b_2", "A_b_3", "_2", "_3"] and names[-1] == "a_b"
    assert all(len(name.encode()) <= 70 for name in names)
    assert check_name("heatmap_α-1") == "heatmap_α-1"
    for name in ("../escaped", "a/b", "", ".hidden", "a\0b", "/etc/x", "a.b", "C:x", "a\n"):
        with pytest.raises(ValueError, match="must be letters"):
            check_name(name)


def test_a_link_in_a_charts_place_is_replaced_and_not_followed(tmp_path):
    precious = tmp_path / "precious"
    precious.write_text("mine")
    (tmp_path / "chart.csv").symlink_to(precious)
    of().save(tmp_path / "chart.csv")
    assert precious.read_text() == "mine" and not (tmp_path / "chart.csv").is_symlink()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["chart.csv", "precious"]
