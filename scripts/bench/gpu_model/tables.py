"""What was found, as lines and as the tables of `docs/gpu.md`."""

from pathlib import Path
from typing import Any

from gpu_model.cases import CASES
from gpu_model.targets import TARGETS

BEGIN, END = "<!-- tables of scripts/bench/gpu_plan.py -->", "<!-- end of tables -->"
KEPT = "docs/results/gpu_before.json"
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
    """Rounds × runs per second by low (0), middle (1) or high (2) launch costs."""
    return found["runs"] / found["seconds"][costs]


def line(found: dict[str, Any]) -> str:
    """In one line, for the terminal."""
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
    """With two or three digits: 1.2M, 340k, 56."""
    for size, letter in ((1e6, "M"), (1e3, "k")):
        if number >= size:
            scaled = number / size
            return f"{scaled:.0f}{letter}" if scaled >= 100 else f"{scaled:.3g}{letter}"
    return f"{number:.3g}"


def row(found: dict[str, Any]) -> str:
    """A row of the table."""
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
    return "| " + " | ".join(cells) + " |"


def tables(everything: list[dict[str, Any]]) -> str:
    """One table for each device; variants, which have a tag, are left out."""
    order = {name: place for place, name in enumerate(CASES)}
    parts = []
    for device, target in TARGETS.items():
        of_device = [f for f in everything if f["device"] == device and not f["tag"] and f["case"] in order]
        if of_device:
            of_device.sort(key=lambda f: (order[f["case"]], f["runs"]))
            versions = ", ".join(sorted({f["jax"] for f in of_device}))
            head = [f"### {target.name}, jax {versions}", ""]
            head += ["| " + " | ".join(_HEAD) + " |", "|" + " --- |" * len(_HEAD)]
            parts.append("\n".join([*head, *map(row, of_device)]))
    return "\n\n".join(parts)


def write(page: Path, everything: list[dict[str, Any]]) -> None:
    """Puts the tables between the two marks of a page.

    Raises:
      ValueError: the page has no such marks.
    """
    before, rest = page.read_text().split(BEGIN)
    after = rest.split(END)[1]
    page.write_text(f"{before}{BEGIN}\n\n{tables(everything)}\n\n{END}{after}")


def modelled(text: str, device: str) -> dict[tuple[str, int], float]:
    """The model's time of a round, µs, by case and runs, from the tables of a page; {} without one."""
    _, found, rest = text.partition(f"### {device}")
    if not found:
        return {}
    rows = [line.split("|")[1:-1] for line in rest.split("###")[0].splitlines() if line.startswith("| ")]
    place = _HEAD.index("round, µs")
    return {
        (cells[0].strip(), int(cells[1].replace(",", ""))): float(cells[place].replace(",", ""))
        for cells in rows
        if cells[0].strip() in CASES
    }
