"""Writes the tables of parameters in docs/spec.md from the vocabularies of specs.

python scripts/document_parameters.py [--check]
"""

import argparse
import sys
from pathlib import Path

from pausejax import kinds
from pausejax.parts import Parameter
from pausejax.study.vocabulary import Vocabulary

PAGE = Path(__file__).resolve().parents[1] / "docs" / "spec.md"
SMALLEST = {
    "": {"policy": [{"name": "random"}]},
    "ensemble": {"mode": "ensemble", "policy": [{"name": "efl_fg"}]},
}
"""The smallest study of each kind, by the name in the markers of the page."""


def row(parameter: Parameter) -> str:
    symbols = ", ".join(f"`{spelling}`" for spelling in parameter.spellings)
    default = parameter.default
    shown = f'"{default}"' if isinstance(default, str) else str(default).lower()
    kind = "traced" if parameter.traced else "static"
    cells = (f"`{parameter.name}`", symbols, shown, parameter.allowed(), kind, parameter.help)
    return f"| {' | '.join(cells)} |"


def tables(words: Vocabulary) -> str:
    lines = []
    for section in words.sections:
        lines += [f"\n### [{section}]\n", "| name | symbols | default | allowed | | meaning |"]
        lines.append("| --- " * 6 + "|")
        lines += [row(parameter) for parameter in words.parameters.values() if parameter.section == section]
    return "\n".join(lines) + "\n\n"


def rewritten(page: str) -> str:
    for kind, document in SMALLEST.items():
        name = f"{kind} parameters".strip()
        head, rest = page.split(f"<!-- {name} -->\n")
        tail = rest.split(f"<!-- /{name} -->")[1]
        words = kinds.parse(document).words
        page = f"{head}<!-- {name} -->\n{tables(words)}<!-- /{name} -->{tail}"
    return page


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="change nothing; exit with 1 if out of date")
    options = parser.parse_args()
    page = PAGE.read_text(encoding="utf-8")
    fresh = rewritten(page)
    if options.check:
        return int(fresh != page)
    PAGE.write_text(fresh, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
