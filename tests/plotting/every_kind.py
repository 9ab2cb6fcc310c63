"""Charts of every kind, made by hand, and labels of somebody who means harm."""

import dataclasses

import numpy as np

from pausejax.plotting.data import Axis, ChartData, Panel, Series, Sweep

HOSTILE = (
    "</script><img src=x onerror=alert(1)>",
    "$\\foo$ \"quoted\" 'too' [0].x ${y} {z} \\",
    "a.b[c]",
    "constructor",
    "long " * 400,
)
ROUND = Axis("round")


def curves(labels=("PAUSE", "random"), count=40, band=True, mark="line", first=0):
    """Curves that rise, with intervals of a tenth."""
    x = np.arange(1.0, count + 1)
    made = []
    for place, label in enumerate(labels, first):
        y = (place + 1) * np.sqrt(x)
        made.append(
            Series(label, x, y, *((0.9 * y, 1.1 * y) if band else (None, None)), mark=mark, style=place)
        )
    return tuple(made)


def charts(labels=("PAUSE", "random")):
    """Every kind of chart by name."""
    rng = np.random.default_rng(0)
    gaps = rng.random(40)
    gaps[10:20] = np.nan
    cells = rng.gamma(3, 3, (2, 3))
    cells[0, 1] = np.nan
    color = rng.gamma(2, 9, 30)
    color[3] = np.nan
    alpha, gamma = Axis("α", names=("1", "3", "30")), Axis("γ", names=("0.1", "100"))
    points = np.arange(30.0)
    share = Axis("rounds taken part in", zero=True)
    names = tuple(f"{labels[0]}, κ = {value:.3g}" for value in color)
    found = [
        ChartData(
            "regret_vs_round",
            "Regret; mean of 3 seeds, band: 95 % t interval.",
            (Panel(ROUND, Axis("regret"), curves(labels)),),
        ),
        ChartData(
            "leakage_vs_round",
            "Leakage, with a budget.",
            (Panel(ROUND, Axis("leakage ε", "log"), curves(labels, band=False), levels=(("budget", 9.0),)),),
        ),
        ChartData(
            "accuracy_vs_time",
            "Accuracy, held up to the next evaluation.",
            (
                Panel(
                    Axis("simulated time, s"),
                    Axis("accuracy, %"),
                    (
                        *(
                            dataclasses.replace(one, x=one.x + 0.3 * place)  # each line has times of its own
                            for place, one in enumerate(curves(labels, mark="step"))
                        ),
                        Series("bound", np.array([1.0, 40]), np.array([9.0, 9]), style=-1),
                    ),
                ),
            ),
        ),
        ChartData(
            "realized_vs_round",
            "Realized regret has both signs; a gap is where nothing was measured.",
            (
                Panel(
                    ROUND,
                    Axis("regret", "symlog", linear=2.0),
                    (Series(labels[0], np.arange(40.0), gaps - 0.5),),
                ),
            ),
        ),
        ChartData(
            "heatmap_time",
            "Time by α and γ. Empty: no runs.",
            (Panel(alpha, gamma, cells=cells, title=labels[0]), Panel(alpha, gamma, cells=cells + 1)),
            2,
            Axis("time, s"),
        ),
        ChartData(
            "pareto",
            "Every setting.",
            (
                Panel(
                    Axis("time, s", "log"),
                    Axis("accuracy, %"),
                    (
                        Series("settings", points + 1, 60 + points, mark="point", color=color, names=names),
                        Series(labels[0], points[::9] + 1, 60 + points[::9], mark="ring", style=6),
                        Series("front", points[::-1] + 1, 60 + points[::-1], mark="step", style=-1),
                    ),
                ),
            ),
            1,
            Axis("leakage ε", "log"),
        ),
        ChartData(
            "participation",
            "How often each client took part.",
            tuple(
                Panel(
                    Axis("client"),
                    share,
                    (
                        Series(
                            label, points, points + place, points - 3, points + 3, mark="point", style=place
                        ),
                    ),
                    levels=(("equal share", 10.0),),
                    title=label,
                    note="two clients were never available",
                )
                for place, label in enumerate(labels)
            ),
            4,
        ),
        ChartData(
            "history",
            "Trials, those that were stopped, and what was confirmed.",
            (
                Panel(
                    Axis("rounds spent"),
                    Axis("regret"),
                    (
                        Series("trials", points, points**2 + 1, mark="point"),
                        Series("trials", points[::7], points[::7] ** 2 + 1, mark="ring"),
                        Series("stopped", points + 0.5, points**2 + 9, mark="cross", style=1),
                    ),
                ),
            ),
        ),
        ChartData("nothing", "A panel without any series.", (Panel(ROUND, Axis("regret")),)),
    ]
    return {chart.name: chart for chart in found}


def sweep(count=60):
    """A study of some settings: a policy, a parameter that one policy lacks, and two metrics."""
    rng = np.random.default_rng(1)
    policy, gamma = rng.integers(0, 2, count).astype(float), 10 ** rng.uniform(-1, 2, count)
    gamma[policy == 1] = np.nan
    leakage, accuracy = rng.gamma(2, 9, count), 60 + 20 * rng.random(count)
    axes = (
        Axis("policy", names=("PAUSE", HOSTILE[0])),
        Axis("γ", "log"),
        Axis("leakage ε", "log"),
        Axis("accuracy, %"),
    )
    values = np.column_stack([policy, gamma, leakage, accuracy])
    labels = tuple(f"setting {place} {HOSTILE[place % 4]}" for place in range(count))
    return Sweep(labels, axes, values, 2, accuracy > np.quantile(accuracy, 0.9), (2, 3, 1))
