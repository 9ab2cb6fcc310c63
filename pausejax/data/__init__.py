"""Data sets and their partition among the clients."""

from pausejax.data import partition
from pausejax.data.dataset import Dataset, checked, normalize
from pausejax.data.sources import load

__all__ = ["Dataset", "checked", "load", "normalize", "partition"]
