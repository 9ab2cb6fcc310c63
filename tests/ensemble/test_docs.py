"""docs/ensemble.md is true: its example runs, and it names every policy."""

import re
from pathlib import Path

import pytest

from pausejax.ensemble import ENSEMBLE_POLICIES

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "ensemble.md").read_text(encoding="utf-8")


@pytest.mark.slow
def test_example_runs(capsys):
    (example,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    exec(compile(example, "docs/ensemble.md", "exec"), {})
    assert capsys.readouterr().out.rstrip().endswith(" 0.0")


def test_every_policy_is_named():
    rows = re.findall(r"^\| `(\w+)` \| ", PAGE.partition("## Policies")[2], re.MULTILINE)
    assert sorted(rows) == sorted(ENSEMBLE_POLICIES)
