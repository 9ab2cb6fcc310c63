"""Writes the table of parameters in docs/spec.md from the one that the code uses.

python scripts/document_parameters.py [--check]
"""

import argparse
import sys
from pathlib import Path

from pausejax.clients.parameters import ALIASES, PARAMETERS, SECTIONS

PAGE = Path(__file__).resolve().parents[1] / "docs" / "spec.md"
BEGIN, END = "<!-- parameters -->\n", "<!-- /parameters -->"


def table() -> str:
    rows = []
    for section in SECTIONS:
        rows += [f"\n### [{section}]\n", "| name | symbols | default | allowed | | meaning |"]
        rows.append("| --- " * 6 + "|")
        for p in PARAMETERS.values():
            if p.section == section:
                symbols = ", ".join(f"`{symbol}`" for symbol, name in ALIASES.items() if name == p.name)
                default = f'"{p.default}"' if isinstance(p.default, str) else str(p.default).lower()
                kind = "traced" if p.traced else "static"
                rows.append(f"| `{p.name}` | {symbols} | {default} | {p.allowed()} | {kind} | {p.help} |")
    return "\n".join(rows) + "\n\n"


def rewritten(page: str) -> str:
    head, rest = page.split(BEGIN)
    return head + BEGIN + table() + END + rest.split(END)[1]


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
