"""docs/ensemble.md is true: its example runs, and it names every policy."""

import re
from pathlib import Path

import pytest

from pausejax.ensemble import ENSEMBLE_POLICIES

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "ensemble.md").read_text(encoding="utf-8")


@pytest.mark.slow
@pytest.mark.usefixtures("own_parts")
def test_examples_run(capsys):
    simulated, own = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    exec(compile(simulated, "docs/ensemble.md", "exec"), {})
    assert capsys.readouterr().out.rstrip().endswith(" 0.0")
    names = {"__name__": "__main__"}
    exec(compile(own, "docs/ensemble.md", "exec"), names)
    result = names["result"]
    sent = result["sent_counts"].values[list(result["policy"].values).index("optimist")]
    assert sent.sum() == 50 and (sent > 0).sum() > 1  # one model a round, and not always the same


def test_every_policy_is_named():
    rows = re.findall(r"^\| `(\w+)` \| ", PAGE.partition("## Policies")[2], re.MULTILINE)
    assert sorted(rows) == sorted(ENSEMBLE_POLICIES)
