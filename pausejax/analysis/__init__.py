"""Analysis of a result: metrics of runs, means over seeds, paired differences, the best settings.

Most functions take the data set that `pausejax.open` or `pausejax.simulate` returns. Functions that need only
final metrics also take the smaller data set that `finals` returns.
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
