"""A small study with labels that no page may believe, and a real browser where there is one."""

import os
import shutil

import pytest

import pausejax

HOSTILE = "<script>alert('x')</script> & \"quoted\" --> ]]>"
TITLE = "</title></script><img src=x onerror=alert(1)> & more"
FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)


@pytest.fixture(scope="session")
def study():
    """Two policies at two γ with three seeds, labelled by somebody who means harm."""
    return pausejax.simulate(
        ["pause", {"name": "random", "label": HOSTILE}],
        mode="bandit",
        rounds=40,
        seeds=3,
        num_clients=6,
        clients_per_round=2,
        gamma=[1.0, 5.0],
        name=TITLE,
    )


@pytest.fixture(scope="session")
def chromium():
    """Debian's chromium, driven by Playwright."""
    path = os.environ.get("CHROMIUM") or shutil.which("chromium") or shutil.which("google-chrome")
    if not path:
        pytest.skip("no chromium here: apt-get install chromium, or CHROMIUM=path")
    playwright = pytest.importorskip("playwright.sync_api", reason="no playwright, of the extra test")
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=path, args=list(FLAGS))
        yield browser
        browser.close()
