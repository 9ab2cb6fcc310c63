"""The version of the package, in a separate module so that any module may import it."""

__version__ = "0.3.0"
