"""Charts with methods that draw, save and convert them."""

import base64
import html
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from pausejax.analysis.frames import harmless
from pausejax.atomic import replacing
from pausejax.plotting import FORMATS
from pausejax.plotting.data import *  # noqa: F403
from pausejax.plotting.data import Axis, ChartData, Panel


class Chart(ChartData):
    """A chart of one or more panels, with methods that draw it, save it and return its numbers."""

    def draw(self, axes: Any) -> None:
        """Draws the chart on matplotlib axes: a single `Axes`, or an array with one `Axes` for each panel.

        Raises:
          ValueError: the numbers of panels and axes differ.
        """
        from pausejax.plotting import paper  # matplotlib is loaded only if it is needed

        paper.draw(self, axes)

    def figure(self, width: float | None = None, height: float | None = None) -> Any:
        """Returns the chart as a matplotlib figure with a legend.

        Args:
          width: the width in inches; default: 3.5 (one column of a paper), or 7.0 if the chart has several
            columns of panels.
          height: the height in inches; default: the height that the panels need.

        Raises:
          ValueError: the labels do not fit into the width and height that were given.
        """
        from pausejax.plotting import paper

        return paper.figure(self, width, height)

    def save(self, path: str | Path, width: float | None = None, height: float | None = None) -> None:
        """Writes the chart in the format of the path's ending: .png, .pdf, .svg, .csv or .json (Vega-Lite).

        Args:
          path: the path of the file. If it is a symbolic link, the link is replaced and its target is kept.
          width: the width of a picture in inches; default: 3.5, or 7.0 for several columns of panels.
          height: the height of a picture in inches; default: the height that the panels need.

        Raises:
          ValueError: the format is unknown, or the labels do not fit into the given size.
          OSError: the file can't be written.
        """
        path = Path(path)
        written = self.encode(path.suffix.removeprefix("."), width, height)
        with replacing(path) as partial:
            partial.write_bytes(written)

    def encode(self, format: str, width: float | None = None, height: float | None = None) -> bytes:
        """Returns the bytes of a file in one of `FORMATS`; a picture has this width and height in inches.

        Raises:
          ValueError: the format is unknown, or the labels do not fit into the given size.
        """
        if format not in FORMATS:
            raise ValueError(f"format = {format!r}: must be one of {', '.join(FORMATS)}")
        if format == "csv":
            return harmless(self.to_dataframe()).to_csv(index=False).encode()
        if format == "json":
            from pausejax.plotting import vega

            return vega.as_json(vega.combined(self)).encode()
        from pausejax.plotting import paper

        return paper.encode(self, format, width, height)

    def to_dataframe(self) -> pd.DataFrame:
        """Returns the numbers of the chart, with a row for each point or each cell of a heat map.

        The columns are panel, series, name, x, y, low, high and color. The column panel has the panel's
        title. If a panel has no title, the column has the labels of the panel's axes. For a cell of a heat
        map, x is the cell's column, y is its row, and color is its value.
        """
        parts = [_frame_of(panel) for panel in self.panels]
        return pd.concat([part for part in parts if len(part)] or parts[:1], ignore_index=True)

    def to_vega(self) -> list[dict[str, Any]]:
        """Returns one Vega-Lite specification for each panel; `altair.Chart.from_dict` takes them."""
        from pausejax.plotting import vega

        return [vega.spec(self, panel) for panel in self.panels]

    def _repr_mimebundle_(self, **_: Any) -> dict[str, Any]:
        from pausejax.plotting import vega

        # v5 is the newest Vega-Lite MIME type that JupyterLab and VS Code render. Other notebooks show the
        # picture.
        return {
            "application/vnd.vegalite.v5+json": vega.combined(self),
            "image/png": _on_screen(self),
            "text/plain": f"{self.name}: {self.caption}",
        }


class Charts(dict[str, Chart]):
    """A dictionary of charts by name. A notebook shows all of them."""

    def __repr__(self) -> str:
        return f"{len(self)} charts: {', '.join(self)}"

    def _repr_html_(self) -> str:
        shown = "".join(
            '<figure style="display:inline-block;margin:0 1em 1em 0;vertical-align:top">'
            f'<img alt="{html.escape(chart.caption, quote=True)}" style="max-width:100%" '
            f'src="data:image/png;base64,{_on_screen(chart)}">'
            f"<figcaption>{html.escape(name)}</figcaption></figure>"
            for name, chart in self.items()
        )
        return f"<div>{shown}</div>"


def _on_screen(chart: Chart) -> str:
    """Returns a PNG picture for a notebook, in Base64."""
    from pausejax.plotting import paper

    return base64.b64encode(paper.encode(chart, "png", dpi=130)).decode()


def _frame_of(panel: Panel) -> pd.DataFrame:
    parts = []
    if panel.cells is not None:
        row, column = np.indices(panel.cells.shape)
        places = {"x": _named(column.ravel(), panel.x), "y": _named(row.ravel(), panel.y)}
        parts.append(pd.DataFrame({"series": "", "name": "", **places, "color": panel.cells.ravel()}))
    for one in panel.series:
        columns = {"x": _named(one.x, panel.x), "y": _named(one.y, panel.y)}
        more = {key: getattr(one, key) for key in ("low", "high", "color")}
        frame = pd.DataFrame({"series": one.label, "name": list(one.names) or "", **columns})
        parts.append(frame.assign(**{key: np.nan if value is None else value for key, value in more.items()}))
    whole = pd.concat(parts, ignore_index=True) if parts else pd.DataFrame()
    whole.insert(0, "panel", panel.what)
    return whole.reindex(columns=["panel", "series", "name", "x", "y", "low", "high", "color"])


def _named(places: np.ndarray, axis: Axis) -> np.ndarray:
    """Returns the names at some positions of an axis, or the numbers themselves if the axis has no names."""
    if not axis.names:
        return np.asarray(places, np.float64)
    return np.array(axis.names, object)[np.asarray(places, int)]
