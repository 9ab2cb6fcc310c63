"""Makes the pages of the documentation site that are not files under docs/, by events of mkdocs.

The front page is README.md, and the page of versions is CHANGELOG.md. Their links are changed so that they
are right in the site. The reference is made of the docstrings, the vocabularies of specs, and the command
line. The gallery shows each committed picture above the specs that draw it.
"""

import io
import os
import posixpath
import re
import runpy
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File

ROOT = Path(__file__).resolve().parents[1]
ABOVE = {"README.md": "index.md", "CHANGELOG.md": "versions.md", "CONTRIBUTING.md": "contributing.md"}
"""Titles in the site of pages that are not under docs/, by path."""
MODULES = (
    "analysis",
    "bandit",
    "data",
    "ensemble",
    "federated",
    "kinds",
    "network",
    "page",
    "plotting",
    "policies",
    "privacy",
    "regret",
    "selection",
)
GALLERY = (
    ("page", "The page of a study", "run sweeps/quickstart.toml"),
    ("quickstart_accuracy", "Test accuracy against simulated time", "run sweeps/quickstart.toml"),
    ("quickstart_leakage", "Leakage against simulated time", "run sweeps/quickstart.toml"),
    ("regret_policies", "Pseudo-regret of the policies", "run sweeps/regret.toml"),
    ("regret_growth", "Pseudo-regret in the long run", "run sweeps/regret_growth.toml"),
    ("selection_gap", "What annealing loses against the exact maximum", "run sweeps/annealing_gap.toml"),
    (
        "hyperparameters_heatmap",
        "Time per round over pairs of axes",
        "run sweeps/hyperparameters.toml --measure mean_latency",
    ),
    ("hyperparameters_pareto", "Trade-off of 512 settings", "run sweeps/hyperparameters.toml"),
    (
        "efl_fg_energy",
        "Error of ensembles on Energy",
        "run sweeps/efl_fg_table1.toml --data-dir FOLDER --where dataset=energy",
    ),
    (
        "efl_fg_regret",
        "Regret of ensembles on Energy",
        "run sweeps/efl_fg_table1.toml --data-dir FOLDER --set rounds=5000 --set data.dataset=energy",
    ),
    ("endings", "Four endings of a round", "run sweeps/endings.toml"),
    ("algorithms", "Algorithms on unequal clients", "run sweeps/algorithms.toml"),
    ("central_privacy", "Policies under a budget that protects a client", "run sweeps/central_privacy.toml"),
    ("privacy_cost", "What privacy of the whole update costs", "run sweeps/privacy_cost.toml"),
    ("reproduction_k30", "Beside the paper's own code, K = 30", "run sweeps/paper/archive_mnist_k30.toml"),
    ("reproduction_k300", "Beside the paper's own code, K = 300", "run sweeps/paper/archive_mnist_k300.toml"),
    (
        "reproduction_cifar10",
        "Beside the paper's own code, CIFAR-10",
        "run sweeps/paper/archive_cifar10_k30.toml",
    ),
    *(
        (f"paper_fig{number}", f"Figure {number} of the PAUSE paper", f"run sweeps/paper/fig{number}.toml")
        for number in range(2, 10)
    ),
    ("beyond_pause", "Value per second beside PAUSE", "scripts/beyond_pause.py"),
    ("search_pays", "Searches beside designs played to the end", "scripts/bench/search.py"),
    ("theorem4", "Theorem 4 on small networks", "scripts/theorem4.py"),
    ("annealing", "What annealing costs", "scripts/bench/annealing.py"),
    ("throughput_vs_lanes", "Speed and memory against runs side by side", "scripts/bench/sweep.py"),
)
"""Every picture of docs/images, with its title and the study or script that draws it."""
_LINK = re.compile(r"(?<=\]\()([^)#:\s]+)(#[^)]*)?(?=\))")


def on_files(files: Any, config: Any) -> Any:
    """Adds the pages to the site."""
    made = {name: (ROOT / source).read_text(encoding="utf-8") for source, name in ABOVE.items()}
    made |= {"gallery.md": gallery(), **reference()}
    for path in sorted(linked()):
        made[f"files/{path}.md"] = shown(path)
    for name, text in made.items():
        page = File.generated(config, name, content=text)
        if name.startswith("files/"):
            page.inclusion = page.inclusion.NOT_IN_NAV
        files.append(page)
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Any) -> str:
    """Changes links that are right in the checkout into links that are right in the site."""
    here = page.file.src_uri
    source = next((source for source, name in ABOVE.items() if name == here), f"docs/{here}")

    def turned(found: re.Match[str]) -> str:
        target = posixpath.normpath(posixpath.join(posixpath.dirname(source), found[1]))
        if here.startswith(("reference/", "files/")) or here == "gallery.md":
            return found[0]
        if target in ABOVE:
            place = ABOVE[target]
        elif target.startswith("docs/"):
            place = target.removeprefix("docs/")
        else:
            place = f"files/{target}.md"
        return posixpath.relpath(place, posixpath.dirname(here) or ".") + (found[2] or "")

    return _LINK.sub(turned, markdown)


def linked() -> set[str]:
    """Files of the checkout outside docs/ that pages link to."""
    found = set[str]()
    for page in [*(ROOT / "docs").glob("*.md"), *(ROOT / name for name in ABOVE)]:
        for target, _ in _LINK.findall(page.read_text(encoding="utf-8")):
            path = os.path.relpath(page.parent / target, ROOT)
            if not path.startswith("docs/") and path not in ABOVE:
                found.add(path)
    return found


def shown(path: str) -> str:
    """Returns a page with the text of a file."""
    text = (ROOT / path).read_text(encoding="utf-8")
    kind = {".toml": "toml", ".py": "python", ".sbatch": "bash", ".sh": "bash"}.get(Path(path).suffix, "text")
    return f"# {path}\n\n```{kind}\n{text.rstrip()}\n```\n"


def gallery() -> str:
    """Returns the page with every committed picture above the study or script that draws it."""
    lines = ["# Gallery\n", "Each picture stands above the study or the script that draws it.\n"]
    for picture, title, how in GALLERY:
        lines += [f"## {title}\n", f"![{title}](images/{picture}.png)\n"]
        if how.startswith("run "):
            spec = how.split()[1]
            text = (ROOT / spec).read_text(encoding="utf-8").rstrip()
            lines += [f"`pausejax {how} --out DIR`\n", f'```toml title="{spec}"\n{text}\n```\n']
        else:
            lines += [f"`python {how} --out DIR`\n"]
    return "\n".join(lines)


def reference() -> dict[str, str]:
    """Returns the pages that are made of the code, by path."""
    modules = {name: f"reference/{name}.md" for name in MODULES} | {"parts": "reference/modules_parts.md"}
    found = {place: f"# pausejax.{name}\n\n::: pausejax.{name}\n" for name, place in modules.items()}
    found["reference/plotting.md"] += "\n::: pausejax.plotting.chart\n\n::: pausejax.plotting.data\n"
    found["reference/pausejax.md"] = (
        "# pausejax\n\nThe public functions of the library.\n\n::: pausejax.api\n\n"
        "::: pausejax.study.spec.SpecError\n    options:\n      show_root_heading: true\n"
    )
    links = "\n".join(
        f"- [`pausejax.{name}`]({posixpath.basename(place)})" for name, place in sorted(modules.items())
    )
    found["reference/index.md"] = (
        "# Reference\n\n- [Parameters](parameters.md): every key of a spec.\n"
        "- [Parts](parts.md): policies, models, data sets and the like.\n"
        "- [Result variables](variables.md): what a result has, with units.\n"
        "- [Commands](commands.md): the command line.\n"
        f"- [`pausejax`](pausejax.md): simulate a study, open a result.\n{links}\n"
    )
    found["reference/parameters.md"] = parameters()
    found["reference/parts.md"] = f"# Parts\n\nAs `pausejax parts` prints them.\n\n{fenced(said('parts'))}"
    found["reference/variables.md"] = variables()
    commands = ("run", "plan", "search", "report", "best", "export", "data", "parts")
    pages = [f"## pausejax {name}\n\n{fenced(said(name, '--help'))}" for name in commands]
    found["reference/commands.md"] = "\n".join(["# Commands\n", fenced(said("--help")), *pages])
    return found


def parameters() -> str:
    """Returns the page with every parameter of both kinds of study."""
    from pausejax import kinds

    tables_of = runpy.run_path(str(ROOT / "scripts" / "document_parameters.py"))
    lines = ["# Parameters\n", "How to write a study: [spec.md](../spec.md).\n"]
    for kind, document in tables_of["SMALLEST"].items():
        title = "Ensembles" if kind else "Client selection"
        lines += [f"## {title}\n", tables_of["tables"](kinds.parse(document).words)]
    return "\n".join(lines)


def variables() -> str:
    """Returns the page with every variable of a result and every metric of a run, of both kinds of study."""
    from pausejax.clients import variables as clients
    from pausejax.ensemble import variables as ensemble

    better = {True: "higher", False: "lower", None: ""}
    lines = [
        "# Result variables\n",
        "`pausejax.analysis.metrics_of(result)` lists the metrics of a result.\n",
    ]
    for title, kind in (("Client selection", clients), ("Ensembles", ensemble)):
        lines += [f"## {title}\n", "| variable | over | unit | meaning |", "| --- | --- | --- | --- |"]
        for name, variable in kind.VARIABLES.items():
            over = ", ".join(("run", *variable.dims))
            lines.append(f"| `{name}` | {over} | {variable.units} | {variable.meaning} |")
        lines += ["\n| metric of a run | better | unit | meaning |", "| --- | --- | --- | --- |"]
        for name, metric in kind.METRICS.items():
            lines.append(f"| `{name}` | {better[metric.maximize]} | {metric.units} | {metric.meaning} |")
        lines.append("")
    return "\n".join(lines)


def said(*arguments: str) -> str:
    """Returns the output of a command."""
    from pausejax.commands.main import main

    written, width = io.StringIO(), os.environ.get("COLUMNS")
    os.environ["COLUMNS"] = "84"
    try:
        with redirect_stdout(written):
            main(arguments)
    except SystemExit:
        pass
    finally:
        os.environ.pop("COLUMNS") if width is None else os.environ.update(COLUMNS=width)
    return written.getvalue()


def fenced(text: str) -> str:
    return f"```text\n{text.rstrip()}\n```\n"
