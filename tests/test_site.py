"""The documentation site: built with warnings as errors, and opened in a real browser."""

import functools
import http.server
import importlib.util
import os
import re
import subprocess
import sys
import threading
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PAGES = ("index", "spec", "gallery", "equations", "versions", "reference/analysis", "reference/parameters")
WIDE_AND_NARROW = (400, 1400)

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(importlib.util.find_spec("material") is None, reason="mkdocs-material: extra docs"),
    pytest.mark.skipif(importlib.util.find_spec("mkdocstrings") is None, reason="mkdocstrings: extra docs"),
]


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


def test_every_page_is_in_the_site(site):
    made = {path.relative_to(site).with_suffix("").as_posix() for path in site.rglob("*.html")}
    written = {path.stem for path in (ROOT / "docs").glob("*.md")}
    assert written | set(PAGES) <= made and "files/scripts/slurm/study.sbatch" in made
    for name in ("mean_ci", "paired_difference", "pareto"):
        assert f'id="pausejax.analysis.{name}"' in (site / "reference" / "analysis.html").read_text()
    assert "privacy_weight" in (site / "reference" / "parameters.html").read_text()
    assert "sa_pause" in (site / "reference" / "parts.html").read_text()


def test_the_gallery_has_every_picture_and_what_draws_it(site):
    text = (site / "gallery.html").read_text(encoding="utf-8")
    shown = re.findall(r'src="images/(\w+)\.png"', text)
    assert sorted(shown) == sorted(path.stem for path in (ROOT / "docs" / "images").glob("*.png"))
    named = re.findall(r"<code>(?:pausejax run|python) ([\w/.]+)", text)
    assert len(named) == len(shown) and all((ROOT / path).is_file() for path in named)


def test_nothing_is_fetched_from_elsewhere(site):
    for path in [*site.rglob("*.html"), *site.rglob("*.css")]:
        text = path.read_text(encoding="utf-8")
        loaded = re.findall(r'<(?:script|link|img|iframe)[^>]+?(?:src|href)="?([^"\s>]+)', text)
        assert not [where for where in loaded if where.startswith(("http", "//"))], path
        assert "fonts.g" not in text, path


@pytest.fixture(scope="module")
def address(site):
    handler = functools.partial(http.server.SimpleHTTPRequestHandler, directory=str(site))
    handler.log_message = lambda *_: None
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_it_opens_at_every_width_by_day_and_night(address, chromium, scheme):
    wrong = []
    for width in WIDE_AND_NARROW:
        context = chromium.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme)
        tab = context.new_page()
        tab.on("console", lambda message: wrong.append(message.text))
        tab.on("pageerror", lambda error: wrong.append(str(error)))
        tab.on("request", lambda r: wrong.append(r.url) if not r.url.startswith((address, "data:")) else None)
        for page in PAGES:
            tab.goto(f"{address}/{page}.html")
            assert tab.evaluate("document.documentElement.scrollWidth") == width, page
            assert tab.locator("h1").first.is_visible()
            pictures = "[...document.images].every(image => image.complete && image.naturalWidth > 0)"
            tab.wait_for_function(pictures)
        context.close()
    assert not wrong


def test_it_can_be_searched(address, chromium):
    tab = chromium.new_page()
    tab.goto(f"{address}/index.html")
    # Typed, because the theme reads the field when a key is let go. `fill` presses no key.
    tab.locator("[data-md-component=search-query]").click()
    tab.keyboard.type("paired_difference")
    tab.locator(".md-search-result__item").first.wait_for(state="attached")
    found = tab.locator(".md-search-result__link").evaluate_all("links => links.map(link => link.href)")
    assert any("analysis" in link for link in found)
    tab.close()


def test_one_command_builds_it_as_the_pages_say():
    for page in ("README.md", "CONTRIBUTING.md"):
        assert "mkdocs serve" in (ROOT / page).read_text(encoding="utf-8"), page
