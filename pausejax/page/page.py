"""One self-contained HTML file per study, which needs no network."""

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
# In the order in which they must be loaded.
_SCRIPTS = ("vendor/vega.min.js", "vendor/vega-lite.min.js", "vendor/vega-embed.min.js", "page.js")


def build(
    result: xr.Dataset,
    charts: Mapping[str, ChartData],
    *,
    notes: Sequence[str] = (),
    summary: tables.Table | None = None,
    compared: xr.Dataset | None = None,
    folded: Sequence[tables.Table] = (),
    sweep: Sweep | None = None,
    baseline: str | None = None,
) -> str:
    """Builds the page of a result. Equal arguments give the same text.

    Args:
      result: as `pausejax run` writes it.
      charts: charts by their file names.
      notes: lines on what was left out, and the options that show it.
      summary: replaces the result's own summary. Without it, a page with `sweep` has no summary, because its
        table has every setting.
      compared: the result whose policies are compared; default: `result`.
      folded: tables that are shown folded, beside the list of runs.
      sweep: every setting of a large study, for the interactive chart and table of all settings.
      baseline: the policy or setting that others are compared with; default: the first one.

    Returns:
      HTML that fetches no picture, script, style or font.

    Raises:
      ValueError: there is no policy or setting with the name `baseline`.
    """
    differences, not_compared = tables.differences(result if compared is None else compared, baseline)
    shown, panels, buttons = figures.figures(charts)
    place = len(panels)
    config: dict[str, Any] = {**encodings.CONFIG, "aria": False}
    if sweep is not None:
        panels.append({key: part for key, part in explorer.explorer(sweep).items() if key != "config"})
    elif summary is None:  # a sweep's table already has every setting
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
        facts=tables.facts(result),
        spec=schema.read(result, "spec"),
        summary=summary,
        folded=folded,
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
    """Returns JSON that can not end the script element around it."""
    text = vega.as_json(document)
    return text.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")
