"""One self-contained HTML page per study."""

from pausejax.page.page import NAME, build

__all__ = ["NAME", "build"]
