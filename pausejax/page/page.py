"""Builds one self-contained HTML file for a study, which needs no network."""

import base64
import hashlib
from collections.abc import Mapping, Sequence
from importlib.resources import files
from typing import Any

import xarray as xr
from jinja2 import Environment, FunctionLoader, StrictUndefined
from markupsafe import Markup

from pausejax.analysis import diverged_runs, schema
from pausejax.page import figures, tables
from pausejax.plotting import encodings, explorer, vega
from pausejax.plotting.data import ChartData, Sweep
from pausejax.version import __version__

NAME = "report.html"
_FOLDER = files("pausejax.page")
_MOST_DIVERGED = 50
# Scripts in the order in which they must be loaded.
_SCRIPTS = ("vendor/vega.min.js", "vendor/vega-lite.min.js", "vendor/vega-embed.min.js", "page.js")


def build(
    result: xr.Dataset,
    charts: Mapping[str, ChartData],
    *,
    notes: Sequence[str] = (),
    summary: tables.Table | None = None,
    folded: Sequence[tables.Table] = (),
    sweep: Sweep | None = None,
    baseline: str | None = None,
) -> str:
    """Builds the page of a result. Equal arguments give the same text.

    Args:
      result: the result, as `pausejax.open` returns it.
      charts: the charts by name.
      notes: lines on what was left out, with the options that show it.
      summary: a table that replaces the summary table and the paired differences. A page with `sweep` has no
        summary table by default, because its table of settings has every setting.
      folded: further tables that are shown folded, like the list of runs.
      sweep: every setting of a large study, for the interactive chart and table of all settings.
      baseline: the policy or setting with which others are compared; default: the first policy or setting.

    Returns:
      The text of an HTML file that loads no other file from the network.

    Raises:
      ValueError: there is no policy or setting with the name `baseline`.
    """
    differences, not_compared = (None, []) if summary else tables.differences(result, baseline)
    shown, panels, buttons = figures.figures(charts)
    place = len(panels)
    config: dict[str, Any] = {**encodings.CONFIG, "aria": False}
    if sweep is not None:
        panels.append({key: part for key, part in explorer.explorer(sweep).items() if key != "config"})
    elif summary is None:  # the table of a sweep already has every setting
        summary = tables.summary(result)
    scripts = [_read(name) for name in _SCRIPTS]
    environment = Environment(
        loader=FunctionLoader(_read),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    return environment.get_template("page.html").render(
        title=schema.read(result, "name") or "a study",
        partial=schema.read(result, "partial"),
        facts=tables.facts(result),
        spec=schema.read(result, "spec"),
        summary=summary,
        folded=folded,
        compared=bool(differences or not_compared),
        differences=differences,
        diverged=diverged_runs(result, _MOST_DIVERGED),
        notes=[*notes, *not_compared],
        runs=tables.runs(result),
        run_count=result.sizes["run"],
        figures=shown,
        buttons=buttons,
        sweep=sweep,
        explorer=place,
        settings=figures.settings(sweep) if sweep is not None else None,
        data=Markup(_data({"config": config, "panels": panels})),
        scripts=[Markup(script) for script in scripts],
        style=Markup(_read("page.css")),
        digests=[base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() for text in scripts],
        version=__version__,
    )


def _read(name: str) -> str:
    return _FOLDER.joinpath(name).read_text(encoding="utf-8")


def _data(document: object) -> str:
    """Returns a document as JSON that can not end the script element that contains it."""
    text = vega.as_json(document)
    return text.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")
