"""The page in a real browser: at two widths, in the dark, printed, pointed at, and without its script."""

import json

import numpy as np
import pytest

from pausejax import kinds, page

from ..analysis.made_up import build
from .conftest import HOSTILE

pytestmark = pytest.mark.slow

WIDTHS, SCHEMES = (400, 1400), ("light", "dark")
LEAKAGE = "figure:has(.file:text-is('leakage_vs_rounds.png, leakage_vs_rounds.pdf'))"


def write(folder, result, figures, notes=()):
    path = folder / page.NAME
    path.write_text(page.build(result, figures, notes=notes), encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def written(study, tmp_path_factory):
    return write(tmp_path_factory.mktemp("page"), study, kinds.draw(study), notes=["a note"])


@pytest.fixture
def opened(chromium, written):
    """A function that opens the page; what went wrong in it, or left it, is an error in the end."""
    contexts, wrong = [], []

    def open_page(width=1400, scheme="light", **options):
        context = chromium.new_context(
            viewport={"width": width, "height": 900}, color_scheme=scheme, **options
        )
        contexts.append(context)
        tab = context.new_page()
        tab.on("console", lambda message: wrong.append(message.text))
        tab.on("pageerror", lambda error: wrong.append(str(error)))
        tab.on("dialog", lambda dialog: wrong.append(dialog.message))
        tab.on(
            "request", lambda request: wrong.append(request.url) if request.url != written.as_uri() else None
        )
        tab.goto(written.as_uri())
        return tab

    yield open_page
    for context in contexts:
        context.close()
    assert not wrong


def brightness(colour):
    """Relative luminance of an `rgb(…)`, as WCAG defines it."""
    parts = np.array([float(part) for part in colour.split("(")[1].rstrip(")").split(",")[:3]]) / 255
    linear = np.where(parts <= 0.04045, parts / 12.92, ((parts + 0.055) / 1.055) ** 2.4)
    return float(linear @ [0.2126, 0.7152, 0.0722])


def contrast(tab, selector, ground="body"):
    ask = """([selector, ground, key]) => [
        getComputedStyle(document.querySelector(selector))[key],
        getComputedStyle(document.querySelector(ground)).backgroundColor,
    ]"""
    key = "fill" if " text" in selector else "color"
    one, other = sorted(map(brightness, tab.evaluate(ask, [selector, ground, key])))
    return (other + 0.05) / (one + 0.05)


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("width", WIDTHS)
def test_it_can_be_read_at_every_width_by_day_and_night(opened, study, width, scheme):
    tab = opened(width, scheme)
    assert tab.evaluate("document.documentElement.scrollWidth") == width
    assert tab.locator(".plot svg").count() == len(kinds.draw(study))
    for box in tab.locator(".plot svg").all():
        found = box.bounding_box()
        assert found["width"] > 200 and found["height"] > 100
        assert box.locator("path").count() > 5
    for selector in ("h1", "p.note", ".plot svg text", "td", "dd", "nav a"):
        assert contrast(tab, selector) > 4.5, selector
    sizes = """[...document.querySelectorAll('.plot svg [style*=font-size]')].map(text => {
        const { a, b } = text.getScreenCTM();
        return parseFloat(getComputedStyle(text).fontSize) * Math.hypot(a, b);
    })"""
    assert min(tab.evaluate(sizes)) > 5.5  # an exponent; all else is larger
    assert np.median(tab.evaluate(sizes)) > 8


def test_pointing_at_a_picture_tells_its_values(opened, study):
    tab = opened()
    svg = tab.locator(f"{LEAKAGE} svg")
    svg.scroll_into_view_if_needed()
    box = svg.bounding_box()
    tab.mouse.move(box["x"] + 0.6 * box["width"], box["y"] + 0.6 * box["height"])
    tip = tab.locator("#tip")
    head, *rows = tip.inner_text().split("\n")
    at = int(head.removeprefix("round "))
    told = dict(zip(rows[::2], rows[1::2], strict=True))
    assert len(told) == 4 and f"{HOSTILE}, γ = 5" in told and 10 < at < 35
    runs = study.isel(run=(study["policy"] == "pause").values & (study["privacy_weight"] == 5).values)
    mean = float(runs["max_leakage"].sel(round=at).mean())
    np.testing.assert_allclose(float(told["pause, γ = 5"].split()[0]), mean, rtol=1e-3)
    assert svg.locator(".guide").count() == 1
    tab.mouse.move(2, 2)
    assert tip.is_hidden() and svg.locator(".guide").count() == 0
    svg.focus()
    tab.keyboard.press("ArrowRight")
    assert tip.is_visible() and tip.inner_text().startswith("round ")
    tab.keyboard.press("Escape")
    assert tip.is_hidden()


def test_lines_are_chosen_in_all_pictures_at_once(opened):
    tab = opened()
    data = json.loads(tab.locator("#data").text_content())
    label = data["labels"][0]
    lines = [
        f"#{part}"
        for found in data["pictures"].values()
        for panel in found["panels"]
        for trace in panel["traces"]
        if trace["label"] == label
        for part in [trace["ids"][0], *([trace["band"]] if "band" in trace else [])]
    ]
    assert len(lines) > 6

    def shown():
        ask = (
            "ids => ids.filter(id => getComputedStyle(document.querySelector(id)).display !== 'none').length"
        )
        return tab.evaluate(ask, lines)

    chip = tab.locator(".chip").first
    assert chip.inner_text() == label and shown() == len(lines)
    chip.click()
    assert chip.get_attribute("aria-pressed") == "false" and shown() == 0
    tab.locator("#all").click()
    assert chip.get_attribute("aria-pressed") == "true" and shown() == len(lines)


def test_axes_change_their_scale_and_come_back(opened, study):
    tab = opened()
    figure = tab.locator(LEAKAGE)
    data = json.loads(tab.locator("#data").text_content())
    place = figure.get_attribute("data-picture")
    (panel,) = data["pictures"][place]["panels"]
    trace = panel["traces"][0]
    line = tab.locator(f"#{trace['ids'][0]} > path")
    before = line.get_attribute("d")
    button = figure.locator(".tools button").first
    assert button.inner_text() == "y: log"
    button.click()
    assert button.inner_text() == "y: linear" and button.get_attribute("aria-pressed") == "true"
    points = np.array([[float(n) for n in point.split()] for point in line.get_attribute("d")[1:].split("L")])
    # Equal factors are equal distances now.
    risen = np.diff(np.log(trace["y"]))
    slopes = np.diff(points[:, 1])[risen > 0.01] / risen[risen > 0.01]
    np.testing.assert_allclose(slopes, slopes.mean(), rtol=0.05)
    _, top, _, bottom = panel["box"]
    assert (points[:, 1] >= top - 0.1).all() and (points[:, 1] <= bottom + 0.1).all()
    assert figure.locator(".own text").count() >= 2
    button.click()
    assert line.get_attribute("d") == before and figure.locator(".own").count() == 0


def test_a_print_is_of_ink_on_paper(opened):
    tab = opened(scheme="dark")
    tab.emulate_media(media="print", color_scheme="dark")
    assert tab.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert contrast(tab, "h1") > 15 and contrast(tab, ".plot svg text") > 15
    for selector in ("nav", "#controls", ".tools"):
        assert tab.locator(selector).first.is_hidden()
    pages = tab.pdf(format="A4").count(b"/Type /Page\n")
    assert 3 <= pages <= 12


def test_without_its_script_it_says_the_same(opened, study):
    tab = opened(java_script_enabled=False)
    assert tab.locator(".plot svg").count() == len(kinds.draw(study))
    assert all(table.is_visible() for table in tab.locator(".difference").all())
    assert tab.locator("#controls").is_hidden() and tab.locator("#tip").is_hidden()


def test_pointing_at_a_cell_tells_its_value(chromium, tmp_path):
    values = {
        "pause": {
            "privacy_weight": [1.0, 5.0, 25.0, 50.0],
            "generalization_weight": [1.0, 10.0, 30.0, 90.0, 99.0],
        }
    }
    result, _, _ = build(values, 3, {"privacy_weight": "gamma", "generalization_weight": "alpha"})
    figures = {
        "pareto": kinds.draw(result)["pareto"],
        "heatmap_max_leakage": kinds.draw(result, measures=["max_leakage"])["heatmap_max_leakage"],
    }
    tab = chromium.new_page()
    tab.goto(write(tmp_path, result, figures).as_uri())
    data = json.loads(tab.locator("#data").text_content())["pictures"]
    for place, found in data.items():
        (panel,) = found["panels"]
        svg = tab.locator(f"#{place}")
        svg.scroll_into_view_if_needed()
        left, top, right, bottom = panel["box"]
        if "cells" in panel:
            cells = panel["cells"]
            # The cell at the upper right.
            spot = (right - 1, top + 1)
            value = cells["values"][-1][-1]
            expected = f"{cells['label']}\n{float(f'{value:.4g}'):g}"
        else:
            ends = []
            for letter, column in zip("xy", panel["dots"], strict=True):
                axis = panel[letter]
                turn = np.log if axis["scale"] == "log" else float
                low, high, at = (turn(v) for v in (axis["from"], axis["to"], column[0]))
                ends.append((at - low) / (high - low))
            spot = (left + ends[0] * (right - left), bottom - ends[1] * (bottom - top))
            expected = panel["x"]["label"]
        box, view = svg.bounding_box(), [float(n) for n in svg.get_attribute("viewBox").split()]
        scale = box["width"] / view[2]
        tab.mouse.move(box["x"] + spot[0] * scale, box["y"] + spot[1] * scale)
        assert expected in tab.locator("#tip").inner_text()
    tab.close()


def test_long_words_do_not_widen_the_page(chromium, study, tmp_path):
    label = "W" * 120
    policies = np.where(study["policy"].values == "pause", "pause", label)
    long = study.assign_coords(policy=("run", policies)).assign_attrs(
        name=label, spec=f'name = "{label * 4}"'
    )
    tab = chromium.new_page(viewport={"width": 400, "height": 900})
    tab.goto(write(tmp_path, long, {"regret": kinds.draw(study)["regret_vs_rounds"]}, notes=[label]).as_uri())
    assert tab.evaluate("document.documentElement.scrollWidth") == 400
    tab.close()
