"""What a result says: per-run figures, seed means with intervals, paired differences, the best settings.

Every function takes the data set that `pausejax.open` or `pausejax.simulate` returns, or the smaller one
that `finals` makes of it once, and gives back a labelled one.
"""

from typing import TYPE_CHECKING

from pausejax import lazy

if TYPE_CHECKING:
    from pausejax.analysis.choice import Verdict, best, non_dominated, pareto, verdict
    from pausejax.analysis.frames import to_dataframe
    from pausejax.analysis.mean_curves import curves
    from pausejax.analysis.means import mean_ci, paired_difference
    from pausejax.analysis.metrics import metrics_of
    from pausejax.analysis.per_run import finals
    from pausejax.analysis.quantities import Metric, Variable
    from pausejax.analysis.selecting import select
    from pausejax.analysis.settings import has
    from pausejax.analysis.summaries import diverged_runs, summary

__all__ = [
    "Metric",
    "Variable",
    "Verdict",
    "best",
    "curves",
    "diverged_runs",
    "finals",
    "has",
    "mean_ci",
    "metrics_of",
    "non_dominated",
    "paired_difference",
    "pareto",
    "select",
    "summary",
    "to_dataframe",
    "verdict",
]

__getattr__ = lazy.face(
    __name__,
    {
        "pausejax.analysis.choice": ("Verdict", "best", "non_dominated", "pareto", "verdict"),
        "pausejax.analysis.frames": ("to_dataframe",),
        "pausejax.analysis.mean_curves": ("curves",),
        "pausejax.analysis.means": ("mean_ci", "paired_difference"),
        "pausejax.analysis.metrics": ("metrics_of",),
        "pausejax.analysis.per_run": ("finals",),
        "pausejax.analysis.quantities": ("Metric", "Variable"),
        "pausejax.analysis.selecting": ("select",),
        "pausejax.analysis.settings": ("has",),
        "pausejax.analysis.summaries": ("diverged_runs", "summary"),
    },
)


def __dir__() -> list[str]:
    return sorted(__all__)
