"""What `pausejax.search` returns."""

import io
from typing import Any, NamedTuple

import xarray as xr
from rich.console import Console

from pausejax.searches.confirm import Compared, changed
from pausejax.searches.find import Found
from pausejax.searches.record import record_of
from pausejax.searches.table import summary, table


class Searched(NamedTuple):
    """What `pausejax.search` has found; its text is the table of the best on fresh seeds."""

    found: Found
    """The search: every setting with what became of it, `found.result` with all its runs."""
    compared: list[Compared]
    """The best first, the second (or the rest of the front), and the defaults, on fresh seeds."""
    confirmation: xr.Dataset
    """The result of these, as `simulate` returns it; policies are "best", "second", "default"."""

    @property
    def best(self) -> dict[str, Any]:
        """The best setting: its policy's label, and every parameter that was chosen."""
        one = self.compared[0]
        chosen = {name: one.setting.values[name] for name in changed(self.compared[:1], self.found)}
        return {"policy": one.setting.policy, **chosen}

    def draw(self) -> dict[str, Any]:
        """The pictures of the search, by name."""
        from pausejax.searches import pictures  # matplotlib is loaded for whoever draws

        return pictures.draw(record_of(self.found, self.compared))

    def __repr__(self) -> str:
        console = Console(file=io.StringIO(), width=120, force_terminal=False)
        console.print(table(self.found, self.compared))
        console.print(summary(self.found), markup=False)
        return console.file.getvalue()  # type: ignore[attr-defined]
