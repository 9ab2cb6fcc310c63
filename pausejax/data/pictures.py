"""Draws pictures of a data set and of its partition. Each function returns a figure to save or show."""

import matplotlib
import numpy as np
from matplotlib.figure import Figure

from pausejax.data.dataset import Dataset
from pausejax.data.partition import Partition

_MOST_TICKS = 15
_MOST_BARS = 60


def sample_sheet(dataset: Dataset, per_class: int = 10) -> Figure:
    """Draws the first training images of every class, one class in each row.

    Args:
      dataset: a data set of images with labels.
      per_class: the number of images in a row, at least 1.
    """
    gap = max(1, dataset.input_shape[0] // 16)
    height, width, channels = (
        dataset.input_shape[0] + gap,
        dataset.input_shape[1] + gap,
        dataset.input_shape[2],
    )
    brightest = int(dataset.train_inputs.max())
    sheet = np.full((dataset.classes, per_class, height, width, channels), brightest, np.uint8)
    for label in range(dataset.classes):
        images = dataset.train_inputs[np.flatnonzero(dataset.train_targets == label)[:per_class]]
        sheet[label, : len(images), gap:, gap:] = images
    tiles = sheet.transpose(0, 2, 1, 3, 4).reshape(dataset.classes * height, per_class * width, channels)

    figure = Figure(figsize=(5, 5 * dataset.classes / per_class + 0.4), layout="constrained")
    axes = figure.add_subplot()
    if channels == 1:
        axes.imshow(tiles[..., 0], cmap="gray", vmin=0, vmax=brightest, interpolation="nearest")
    else:
        axes.imshow(tiles, interpolation="nearest")
    axes.set_xticks([])
    axes.set_yticks(
        (np.arange(dataset.classes) + 0.5) * height - 0.5,
        [str(label) for label in range(dataset.classes)],
    )
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)
    axes.set_ylabel("label")
    train, test = len(dataset.train_targets), len(dataset.test_targets)
    title = f"{dataset.name}: {train:,} training and {test:,} test images"
    axes.set_title(title, fontsize=10, parse_math=False)
    return figure


def partition_picture(partition: Partition, labels: np.ndarray, title: str = "") -> Figure:
    """Draws the number of samples of each label that every client owns, as stacked bars.

    If there are many clients, they are sorted by size.

    Args:
      partition: the partition of the training set.
      labels: int [N], the training labels.
      title: the title above the bars.
    """
    counts = partition.label_counts(labels)
    clients = np.arange(len(counts))
    many = len(counts) > _MOST_BARS
    if many:
        counts = counts[np.argsort(-partition.sizes, kind="stable")]
    figure = Figure(figsize=(6, 3.2), layout="constrained")
    axes = figure.add_subplot()
    colours = matplotlib.colormaps["tab10" if counts.shape[1] <= 10 else "turbo"]
    top = np.zeros(len(counts), np.int64)
    bar_width = 1.0 if many else 0.9
    for label in range(counts.shape[1]):
        colour = colours(label) if counts.shape[1] <= 10 else colours(label / (counts.shape[1] - 1))
        axes.bar(clients, counts[:, label], bottom=top, width=bar_width, color=colour, label=str(label))
        top += counts[:, label]
    axes.set_xlabel("clients, from most to fewest samples" if many else "client")
    axes.set_ylabel("number of samples")
    axes.set_xlim(-0.6, len(counts) - 0.4)
    if len(counts) <= _MOST_TICKS:
        axes.set_xticks(clients)
    axes.set_title(title, fontsize=10, parse_math=False)
    axes.spines[["top", "right"]].set_visible(False)
    if counts.shape[1] <= 10:
        handles, names = axes.get_legend_handles_labels()
        figure.legend(handles[::-1], names[::-1], title="label", loc="outside right center", frameon=False)
    return figure
