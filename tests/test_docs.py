"""Documentation that can go stale is checked against the code."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from pausejax import kinds as spec
from pausejax.study.plan import make_plan

ROOT = Path(__file__).resolve().parents[1]


def test_parameter_table_is_up_to_date():
    command = [sys.executable, str(ROOT / "scripts" / "document_parameters.py"), "--check"]
    outcome = subprocess.run(command, cwd=ROOT, check=False)
    assert outcome.returncode == 0, "run python scripts/document_parameters.py"


@pytest.mark.parametrize("path", sorted((ROOT / "sweeps").rglob("*.toml")), ids=lambda path: path.stem)
def test_every_ready_spec_is_valid(path):
    assert make_plan(spec.load(path)).runs


@pytest.mark.parametrize(
    "page", [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))], ids=lambda p: p.stem
)
def test_every_relative_link_leads_somewhere(page):
    for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text(encoding="utf-8")):
        assert (page.parent / target).exists(), target
