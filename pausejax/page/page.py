"""One page per study: everything in one HTML file that asks nothing of a network."""

import base64
import hashlib
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from importlib.resources import files

import xarray as xr
from jinja2 import Environment, FunctionLoader, StrictUndefined
from markupsafe import Markup
from matplotlib.figure import Figure

from pausejax.analysis import diverged_runs, schema
from pausejax.page import pictures, tables
from pausejax.version import __version__

NAME = "report.html"
_FOLDER = files("pausejax.page")
_MOST_DIVERGED = 50


def build(
    result: xr.Dataset,
    figures: Mapping[str, Figure],
    *,
    notes: Sequence[str] = (),
    summary: tables.Table | None = None,
    compared: xr.Dataset | None = None,
    folded: Sequence[tables.Table] = (),
) -> str:
    """The page of a result; the same text for the same result and figures.

    Args:
      result: as `pausejax run` writes it.
      figures: of `pausejax.kinds.draw`, by file name; drawn for the page and not to be changed by anybody
        else meanwhile: their artists get names.
      notes: what was left out, and how to ask for it; one line each.
      summary: in place of the result's own.
      compared: the result whose policies are compared, in place of this one.
      folded: tables that stand beside the runs, folded up.

    Returns:
      HTML with everything in it: no picture, script, style or font is fetched from anywhere.
    """
    drawn, too_large = pictures.make(figures)
    differences, not_compared = tables.differences(result if compared is None else compared)
    scales, page, style = map(_read, ("scales.js", "page.js", "page.css"))
    script = scales + page
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    every = Counter(label for picture in drawn for label in picture.labels)
    # A fit or a front is of one picture alone, and no line of the study.
    labels = [label for label, count in every.items() if count > 1 or len(drawn) == 1]
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
        summary=tables.summary(result) if summary is None else summary,
        folded=folded,
        differences=differences,
        diverged=diverged_runs(result, _MOST_DIVERGED),
        notes=[*notes, *too_large, *not_compared],
        runs=tables.runs(result),
        run_count=result.sizes["run"],
        pictures=[picture._replace(markup=Markup(picture.markup)) for picture in drawn],
        data=Markup(_data({"labels": labels, "pictures": {p.place: p.data for p in drawn if p.data}})),
        labels=labels,
        script=Markup(script),
        style=Markup(style),
        digest=digest,
        version=__version__,
    )


def _read(name: str) -> str:
    return _FOLDER.joinpath(name).read_text(encoding="utf-8")


def _data(document: object) -> str:
    """JSON that ends no script element, whatever is in it."""
    text = json.dumps(document, ensure_ascii=False, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")
