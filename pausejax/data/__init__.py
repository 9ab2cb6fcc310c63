"""Data sets and how they are shared out among the clients."""

from pausejax.data import partition
from pausejax.data.dataset import Dataset, normalize
from pausejax.data.sources import load

__all__ = ["Dataset", "load", "normalize", "partition"]
