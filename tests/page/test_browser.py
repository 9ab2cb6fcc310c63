"""The page in a real browser: at two widths, in the dark, printed, pointed at, and without its script."""

import time

import numpy as np
import pytest

from pausejax import page

from ..plotting.every_kind import HOSTILE, charts, sweep

pytestmark = pytest.mark.slow

WIDTHS, SCHEMES = (420, 1400), ("light", "dark")
REGRET = "[data-chart=regret_vs_round]"
FRAMES = "() => new Promise(done => requestAnimationFrame(() => requestAnimationFrame(() => done())))"


@pytest.fixture(scope="module")
def written(study, tmp_path_factory):
    path = tmp_path_factory.mktemp("page") / page.NAME
    made = sweep(1024)
    made.values[::100, 2] = np.inf  # the leakage
    path.write_text(page.build(study, charts(HOSTILE), notes=["a note"], sweep=made), encoding="utf-8")
    return path


@pytest.fixture
def opened(chromium, written):
    """A function that opens the page; what went wrong in it, or left it, is an error in the end."""
    contexts, wrong = [], []

    def open_page(width=1400, scheme="light", drawn=True, **options):
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
        if drawn:
            tab.wait_for_function("document.body.dataset.drawn")
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


def plot_of(tab, chart):
    """The first plot of a chart, and where it lies in the window."""
    plot = tab.locator(f"{chart} .plot").first
    plot.evaluate("node => node.scrollIntoView({ block: 'center' })")
    # The event `scroll`, which hides the values of a point, comes with the next frame.
    tab.evaluate("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")
    return plot, plot.bounding_box()


def spot(box, across, upwards):
    return box["x"] + across * box["width"], box["y"] + upwards * box["height"]


def ends_along(plot, letter, area):
    """The values at both ends of a linear axis, by the places of its labels."""
    labels = plot.locator(f".role-axis-label >> nth={'xy'.index(letter)}").locator("text").all()
    shown = [(one.text_content(), one.bounding_box()) for one in labels if one.text_content()]
    side = {"x": "width", "y": "height"}[letter]
    places = [box[letter] + box[side] / 2 for _, box in shown]
    slope, start = np.polyfit(places, [float(text.replace("−", "-")) for text, _ in shown], 1)
    return np.array([start + slope * area[letter], start + slope * (area[letter] + area[side])])


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("width", WIDTHS)
def test_it_can_be_read_at_every_width_by_day_and_night(opened, width, scheme):
    tab = opened(width, scheme)
    assert tab.evaluate("document.documentElement.scrollWidth") == width
    assert tab.locator(".plot svg").count() == tab.locator(".plot").count() > 10
    assert tab.locator("text=not drawn").count() == 0
    for plot in tab.locator(".plot svg").all():
        found = plot.bounding_box()
        assert 150 < found["width"] <= width and found["height"] > 100
    for selector in ("h1", "p.note", ".plot svg text", "td", "dd", "nav a", ".chip", ".tools button"):
        assert contrast(tab, selector) > 4.5, selector
    assert tab.locator("details.numbers[open]").count() == 0


def test_pointing_at_lines_tells_all_of_them(opened):
    tab = opened()
    _, box = plot_of(tab, REGRET)
    tab.mouse.move(*spot(box, 0.6, 0.5))
    tip = tab.locator("#tip")
    at = int(tip.locator("b").inner_text().removeprefix("round "))
    told = [[part.text_content() for part in row.locator("span").all()] for row in tip.locator("div").all()]
    assert {label for label, _ in told} == set(HOSTILE) and 10 < at < 35
    for label, value in told:
        mean = (HOSTILE.index(label) + 1) * np.sqrt(at)
        first, low, _, high = value.replace("(", "").replace(")", "").split()
        np.testing.assert_allclose(
            [float(first), float(low), float(high)], mean * np.array([1, 0.9, 1.1]), rtol=1e-3
        )
    assert tab.locator(".guide:visible").count() == 1
    tab.mouse.move(2, 2)
    assert tip.is_hidden() and tab.locator(".guide:visible").count() == 0


def test_pointing_at_lines_with_times_of_their_own_tells_the_time_of_each_value(opened):
    tab = opened()
    plot, box = plot_of(tab, "[data-chart=accuracy_vs_time]")
    tab.mouse.move(*spot(box, 0.6, 0.5))
    tip = tab.locator("#tip")
    head = float(tip.locator("b").inner_text().rsplit(" ", 1)[1])
    told = [[part.text_content() for part in row.locator("span").all()] for row in tip.locator("div").all()]
    assert {label for label, _ in told} == set(HOSTILE)
    for label, value in told:
        own = float(value.rsplit(" at ", 1)[1]) if " at " in value else head
        place = HOSTILE.index(label)
        mean = (place + 1) * np.sqrt(own - 0.3 * place)
        np.testing.assert_allclose(float(value.split()[0]), mean, rtol=2e-3)
    assert sum(" at " in value for _, value in told) == len(HOSTILE) - 1
    # The guide stands at this time.
    area = plot.locator(".background").first.bounding_box()
    low, high = ends_along(plot, "x", area)
    guide = tab.locator(".guide:visible").bounding_box()
    assert abs(guide["x"] - area["x"] - area["width"] * (head - low) / (high - low)) < 1.5


def test_a_finger_asks_too_and_the_page_still_scrolls(opened):
    tab = opened(420, has_touch=True, is_mobile=True)
    _, box = plot_of(tab, REGRET)
    tab.touchscreen.tap(*spot(box, 0.6, 0.5))
    assert tab.locator("#tip").is_visible()


def test_pointing_at_points_and_cells_tells_what_they_are(opened):
    tab = opened()
    tip = tab.locator("#vg-tooltip-element.visible")
    plot_of(tab, "[data-chart=pareto]")
    tab.locator("[data-chart=pareto] .mark-symbol path").nth(7).hover(force=True)
    assert f"{HOSTILE[0]}, κ = " in tip.text_content() and "leakage ε" in tip.text_content()
    _, box = plot_of(tab, "[data-chart=heatmap_time]")
    tab.mouse.move(*spot(box, 0.25, 0.2))
    tip.wait_for()
    assert [row.text_content() for row in tip.locator("tr").all()][:2] == ["α1", "γ100"]


def test_lines_are_chosen_in_all_charts_at_once(opened):
    tab = opened()
    count = "() => document.querySelectorAll('.plot .mark-line path, .plot .mark-area path').length"
    before = tab.evaluate(count)
    chip = tab.locator(".chip").first
    assert chip.inner_text().startswith(HOSTILE[0][:10])
    chip.click()
    tab.evaluate(FRAMES)
    assert chip.get_attribute("aria-pressed") == "false"
    # A line and its band, a line alone, steps with their band, a line about 0.
    assert tab.evaluate(count) <= before - 6
    _, box = plot_of(tab, REGRET)
    tab.mouse.move(*spot(box, 0.6, 0.5))
    assert tab.locator("#tip div").count() == len(HOSTILE) - 1
    tab.locator("#all").click()
    tab.evaluate(FRAMES)
    assert chip.get_attribute("aria-pressed") == "true" and tab.evaluate(count) == before


def test_a_box_is_enlarged_and_a_double_click_shows_all(opened):
    tab = opened()
    plot, _ = plot_of(tab, "[data-chart=accuracy_vs_time]")
    area = plot.locator(".background").first.bounding_box()
    before = {letter: ends_along(plot, letter, area) for letter in "xy"}
    tab.mouse.move(*spot(area, 0.4, 0.3))
    tab.mouse.down()
    tab.mouse.move(*spot(area, 0.5, 0.4))
    tab.mouse.move(*spot(area, 0.7, 0.6))
    tab.mouse.up()
    tab.wait_for_timeout(100)
    for letter, (low, high) in {"x": (0.4, 0.7), "y": (0.3, 0.6)}.items():
        first, last = before[letter]
        expected = [first + share * (last - first) for share in (low, high)]
        reach = 0.02 * abs(last - first)
        np.testing.assert_allclose(ends_along(plot, letter, area), expected, atol=reach)
    tab.mouse.dblclick(*spot(area, 0.6, 0.5))
    tab.wait_for_timeout(100)
    for letter in "xy":
        np.testing.assert_allclose(ends_along(plot, letter, area), before[letter])


def test_axes_change_their_scale_and_come_back(opened):
    tab = opened()
    plot, _ = plot_of(tab, "[data-chart=leakage_vs_round]")
    line = plot.locator(".mark-line path").first

    def points():
        path = line.get_attribute("d")[1:].split("L")
        return np.array([[float(number) for number in point.split(",")] for point in path])

    before = points()
    button = tab.locator("[data-chart=leakage_vs_round] [data-log=y]")
    assert button.get_attribute("aria-pressed") == "true"
    # Equal factors are equal distances.
    risen = np.diff(np.log(np.sqrt(np.arange(1, 41))))
    np.testing.assert_allclose(np.diff(before[:, 1]) / risen, np.diff(before[:, 1])[0] / risen[0], rtol=0.05)
    button.click()
    tab.wait_for_timeout(300)
    assert button.get_attribute("aria-pressed") == "false"
    risen = np.diff(np.sqrt(np.arange(1, 41)))
    np.testing.assert_allclose(
        np.diff(points()[:, 1]) / risen, np.diff(points()[:, 1])[0] / risen[0], rtol=0.1
    )
    button.click()
    tab.wait_for_timeout(300)
    np.testing.assert_allclose(points(), before)


def test_a_reader_explores_all_settings(opened, record_property):
    tab = opened()
    figure = tab.locator(".explorer")
    plot = figure.locator(".plot")
    titles = ".role-axis-title text"
    for place, column in enumerate(("0", "1", "0", "2")):
        figure.locator("select").nth(place).select_option(column)
        tab.wait_for_timeout(300)
    found = plot.locator(titles).all_text_contents()
    assert {"policy", "γ", "leakage ε"} <= set(found)
    figure.locator("select").nth(1).select_option("3")
    tab.wait_for_timeout(300)
    _, box = plot_of(tab, ".explorer")
    faint = "() => document.querySelectorAll('.explorer .plot [opacity=\"0.07\"]').length"
    assert tab.evaluate(faint) == 0
    strip = plot.locator(".concat_1_group > g > .background").first.bounding_box()
    height = strip["y"] + strip["height"] / 2
    tab.mouse.move(box["x"] + 500, height)
    tab.mouse.down()
    tab.mouse.move(box["x"] + 600, height)
    begun = time.monotonic()
    tab.mouse.move(box["x"] + 1000, height)
    tab.evaluate(FRAMES)
    record_property("seconds that a brush takes", time.monotonic() - begun)
    tab.mouse.up()
    assert 100 < tab.evaluate(faint) < 1100


def test_a_table_is_sorted_by_any_of_its_columns(opened):
    tab = opened()
    table = tab.locator(".explorer table")

    def texts(head):
        read = "(rows, place) => rows.map(row => row.cells[place].textContent)"
        return table.locator("tbody tr").evaluate_all(read, head.evaluate("cell => cell.cellIndex"))

    head = table.locator("th", has_text="accuracy")
    for direction, sign in (("ascending", 1), ("descending", -1)):
        head.locator("button").click()
        assert head.get_attribute("aria-sort") == direction
        found = np.array(texts(head), float)
        assert (np.diff(sign * found) >= 0).all() and len(found) == 1000
    head = table.locator("th", has_text="leakage")
    for sign in (1, -1):
        head.locator("button").click()
        found = sign * np.array([cell.replace("∞", "inf") for cell in texts(head)], float)
        assert np.isinf(found).sum() > 5 and (found[:-1] <= found[1:]).all()
    # A setting that lacks a parameter comes after those that have it.
    head = table.locator("th", has_text="γ")
    head.locator("button").click()
    cells = texts(head)
    numbers = [cell for cell in cells if cell != "–"]
    assert cells[: len(numbers)] == numbers and (np.diff(np.array(numbers, float)) >= 0).all()
    assert table.locator("th[aria-sort]").count() == 1


def test_without_its_script_tables_have_the_numbers(opened):
    tab = opened(drawn=False, java_script_enabled=False)
    assert tab.locator(".plot:visible").count() == 0 == tab.locator(".tools button:visible").count()
    assert tab.locator(".numbers table").count() == tab.locator(".numbers table:visible").count() > 8
    assert tab.locator("noscript p").is_visible() and tab.locator("#tip").is_hidden()
    assert tab.evaluate("document.documentElement.scrollWidth") == 1400
