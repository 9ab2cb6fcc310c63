"""The version of the package, kept apart so that any room may read it."""

__version__ = "0.3.0"
