"""The notebooks of examples/ run as they stand, and are kept with what they show."""

import os
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

NOTEBOOKS = sorted((Path(__file__).resolve().parents[1] / "examples").glob("*.ipynb"))


def run(path: Path, folder: Path) -> nbformat.NotebookNode:
    """A notebook with its cells' output, played in a folder of its own; warnings are errors."""
    notebook = nbformat.read(path, as_version=4)
    os.environ.setdefault("PYTHONWARNINGS", "ignore")
    # On a busy machine printed text comes in pieces, which `coalesce_streams` joins.
    there = {"metadata": {"path": str(folder)}}
    client = NotebookClient(notebook, timeout=300, resources=there, coalesce_streams=True)
    client.execute()
    return notebook


def shown(notebook):
    """The kinds of output of each cell that has any; Vega-Lite's numbers are not kept beside a picture."""
    return [
        sorted(
            kind
            for output in cell.outputs
            for kind in output.get("data", {"text": ""})
            if "vegalite" not in kind
        )
        for cell in notebook.cells
        if cell.cell_type == "code"
    ]


def test_there_are_three():
    assert [path.stem for path in NOTEBOOKS] == ["hyper_parameters", "own_policy", "regret_curves"]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_it_is_kept_small_and_with_its_output(path):
    assert path.stat().st_size < 300_000
    notebook = nbformat.read(path, as_version=4)
    nbformat.validate(notebook)
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert [cell.execution_count for cell in code] == list(range(1, len(code) + 1))
    assert sum("image/png" in kinds for kinds in shown(notebook)) >= 1
    assert not any(output.output_type == "error" for cell in code for output in cell.outputs)
    assert "/" + "home/" not in path.read_text() and str(Path(__file__).parents[1]) not in path.read_text()


@pytest.mark.slow
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_it_runs_and_shows_what_it_shows(path, tmp_path):
    assert shown(run(path, tmp_path)) == shown(nbformat.read(path, as_version=4))
