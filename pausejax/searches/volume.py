"""The volume that a front dominates: one number for how good a front of several objectives is."""

import numpy as np

from pausejax.analysis.choice import non_dominated


def hypervolume(points: np.ndarray, reference: np.ndarray) -> float:
    """The volume between a reference and some points, by slicing along the last objective (Zitzler 1999).

    Args:
      points: [n, d], more is better.
      reference: [d]; points that are not better than it in every objective add nothing.
    """
    points = np.asarray(points, np.float64)
    points = points[(points > reference).all(axis=1)]
    if not len(points):
        return 0.0
    points = np.unique(points[non_dominated(points, [True] * points.shape[1])], axis=0)
    if points.shape[1] == 1:
        return float(points.max() - reference[0])
    along = points[np.argsort(-points[:, -1], kind="stable")]
    floors = np.append(along[1:, -1], reference[-1])
    slices = along[:, -1] - floors
    areas = [hypervolume(along[: count + 1, :-1], reference[:-1]) for count in np.flatnonzero(slices > 0)]
    return float(np.dot(areas, slices[slices > 0]))
