"""Tables and pictures from a result, and the numbers that they are drawn from."""

from typing import TYPE_CHECKING

from pausejax import lazy

if TYPE_CHECKING:
    from pausejax.report.grid import arrange
    from pausejax.report.series import series_of
    from pausejax.report.style import save
    from pausejax.report.summary import summary_table
    from pausejax.report.unshown import left_out

__all__ = ["arrange", "left_out", "save", "series_of", "summary_table"]

__getattr__ = lazy.face(
    __name__,
    {
        "pausejax.report.grid": ("arrange",),
        "pausejax.report.series": ("series_of",),
        "pausejax.report.style": ("save",),
        "pausejax.report.summary": ("summary_table",),
        "pausejax.report.unshown": ("left_out",),
    },
)


def __dir__() -> list[str]:
    return sorted(__all__)
