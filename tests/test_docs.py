"""Documentation that can go stale is checked against the code."""

import pkgutil
import re
import subprocess
import sys
from pathlib import Path

import pytest

from pausejax import kinds as spec
from pausejax.parts.extensions import ENTRY_POINTS
from pausejax.study.plan import make_plan
from pausejax.version import __version__

ROOT = Path(__file__).resolve().parents[1]
PAGES = [
    *(ROOT / name for name in ("README.md", "CHANGELOG.md", "CONTRIBUTING.md")),
    *sorted((ROOT / "docs").glob("*.md")),
]


def test_parameter_table_is_up_to_date():
    command = [sys.executable, str(ROOT / "scripts" / "document_parameters.py"), "--check"]
    outcome = subprocess.run(command, cwd=ROOT, check=False)
    assert outcome.returncode == 0, "run python scripts/document_parameters.py"


@pytest.mark.parametrize("path", sorted((ROOT / "sweeps").rglob("*.toml")), ids=lambda path: path.stem)
def test_every_ready_spec_is_valid(path):
    assert make_plan(spec.load(path)).runs


def test_every_page_says_for_whom_it_is():
    for page in sorted((ROOT / "docs").glob("*.md")):
        first = page.read_text(encoding="utf-8").split("\n\n")[1]
        assert first.startswith("For whoever "), page.name


def test_the_readme_is_short():
    assert len((ROOT / "README.md").read_text(encoding="utf-8").split()) < 900


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_every_relative_link_leads_somewhere(page):
    for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text(encoding="utf-8")):
        assert (page.parent / target).exists(), target


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_every_module_and_file_that_a_page_names_is_there(page):
    text = page.read_text(encoding="utf-8")
    for name in set(re.findall(r"`@?(pausejax(?:\.\w+)+)", text)) - {ENTRY_POINTS}:
        assert pkgutil.resolve_name(name) is not None
    for path in re.findall(r"(?<![\w/])(?:docs|examples|pausejax|scripts|sweeps|tests)/[\w/]+\.\w+", text):
        assert (ROOT / path).is_file() or path == "sweeps/mine.toml", path


def test_every_room_has_a_row():
    page = (ROOT / "docs" / "rooms.md").read_text(encoding="utf-8")
    named = set(re.findall(r"`(\w+)(?:/|\.py)`", page))
    rooms = {path.stem for path in (ROOT / "pausejax").iterdir() if path.suffix == ".py" or path.is_dir()}
    assert {room for room in rooms if not room.startswith("__")} <= named


def test_the_citation_and_the_changes_are_of_this_version():
    assert f"\nversion: {__version__}\n" in (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    newest = re.search(r"^## (\S+)", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert newest and __version__.split(".dev")[0] == newest[1]
