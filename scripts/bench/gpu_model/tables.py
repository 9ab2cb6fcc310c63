"""Writes results as lines and as the tables of `docs/gpu.md`."""

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from gpu_model.cases import CASES
from gpu_model.targets import TARGETS

BEGIN, END = "<!-- tables of scripts/bench/gpu_plan.py -->", "<!-- end of tables -->"
_HEAD = (
    "case",
    "runs",
    "launches (in graphs)",
    "graphs",
    "syncs",
    "MB moved",
    "GFLOP",
    "memory, GB",
    "round, µs",
    "rounds × runs per s (range)",
    "roofline, µs (share)",
)


def rate(found: dict[str, Any], costs: int) -> float:
    """Returns rounds × runs per second with low (0), middle (1) or high (2) launch costs."""
    return found["runs"] / found["seconds"][costs]


def line(found: dict[str, Any]) -> str:
    """Returns the results of a case in one line, for the terminal."""
    us = [round(seconds * 1e6) for seconds in found["seconds"]]
    told = (
        f"{found['device']} {found['case']} {found['runs']}: {found['launches']:.0f} launches "
        f"({found['in_graphs']:.0f} in {found['graphs']:.1f} graphs), {found['syncs']:.1f} syncs, "
        f"{found['bytes'] / 1e6:.1f} MB, {found['flops'] / 1e9:.2f} GFLOP, "
        f"{found['memory'] / 1e6:.1f} MB held, "
        f"{us[1]} µs ({us[0]}-{us[2]}), {rate(found, 1):,.0f} rounds x runs/s, "
        f"roofline {found['roofline'] * 1e6:.2f} µs; {found['took']} s"
    )
    return told + "".join(f"\n  taken once: {source}" for source in found["unknown"])


def short(number: float) -> str:
    """Formats a number with two or three digits: 1.2M, 340k, 56."""
    for size, letter in ((1e6, "M"), (1e3, "k")):
        if number >= size:
            scaled = number / size
            return f"{scaled:.0f}{letter}" if scaled >= 100 else f"{scaled:.3g}{letter}"
    return f"{number:.3g}"


def row(found: dict[str, Any]) -> str:
    """Returns a row of the table."""
    low, middle, high = (rate(found, costs) for costs in range(3))
    share = found["roofline"] / found["seconds"][1]
    cells = (
        found["case"],
        f"{found['runs']:,}",
        f"{found['launches']:,.0f} ({found['in_graphs']:,.0f})",
        f"{found['graphs']:.0f}",
        f"{found['syncs']:.0f}",
        f"{found['bytes'] / 1e6:,.1f}",
        f"{found['flops'] / 1e9:,.3g}" if found["flops"] else "0",
        f"{found['memory'] / 1e9:.3f}",
        f"{found['seconds'][1] * 1e6:,.0f}",
        f"{short(middle)} ({short(high)}–{short(low)})",
        f"{found['roofline'] * 1e6:,.2f} ({100 * share:.1f} %)",
    )
    return _line(cells)


def tables(everything: list[dict[str, Any]], page: str) -> str:
    """Returns a table for each device, without variants, which have a tag.

    A row of the page stays as it is if there is no result for it.
    """
    order = {name: place for place, name in enumerate(CASES)}
    parts = []
    for device, target in TARGETS.items():
        of_device = [f for f in everything if f["device"] == device and not f["tag"] and f["case"] in order]
        rows = {key: _line(cells) for key, cells in _rows(page, f"### {target.name}").items()}
        rows |= {(f["case"], f["runs"]): row(f) for f in of_device}
        if rows:
            before = re.findall(rf"### {re.escape(target.name)}, jax (\S+)", page)
            versions = ", ".join(sorted({f["jax"] for f in of_device} | set(before)))
            head = [f"### {target.name}, jax {versions}", ""]
            head += [_line(_HEAD), "|" + " --- |" * len(_HEAD)]
            shown = sorted(rows, key=lambda key: (order[key[0]], key[1]))
            parts.append("\n".join([*head, *(rows[key] for key in shown)]))
    return "\n\n".join(parts)


def write(page: Path, everything: list[dict[str, Any]]) -> None:
    """Writes the tables of some results between the marks of a page.

    Raises:
      ValueError: the page has no such marks.
    """
    text = page.read_text()
    before, rest = text.split(BEGIN)
    page.write_text(f"{before}{BEGIN}\n\n{tables(everything, text)}\n\n{END}{rest.split(END)[1]}")


def _line(cells: Iterable[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def _rows(text: str, title: str) -> dict[tuple[str, int], list[str]]:
    """Returns the cells of the table under a title, by case and runs."""
    rest = text.partition(title)[2].split("<!--")[0].split("###")[0]
    found = ([cell.strip() for cell in line.split("|")[1:-1]] for line in rest.splitlines())
    return {(c[0], int(c[1].replace(",", ""))): c for c in found if c and c[0] in CASES}


def modelled(text: str, device: str) -> dict[tuple[str, int], float]:
    """Returns the model's µs of a round by case and runs, from the table of a page; {} without a table."""
    place = _HEAD.index("round, µs")
    return {key: float(cells[place].replace(",", "")) for key, cells in _rows(text, f"### {device}").items()}
