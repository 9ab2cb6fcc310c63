"""Data sets and how they are shared out among the clients."""

from pausejax.data import partition
from pausejax.data.dataset import Dataset, normalize
from pausejax.data.sources import DATASETS, load

__all__ = ["DATASETS", "Dataset", "load", "normalize", "partition"]
