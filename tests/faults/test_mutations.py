"""Specs and overrides that were mistyped or made up to do harm: one line a mistake, never a traceback.

`--mutations N` says how many; 500 if not given.
"""

import contextlib
import io
import random
import traceback

import jax
import numpy as np
import pytest

import pausejax
from pausejax.commands import main as cli

from . import mutants

pytestmark = pytest.mark.usefixtures("little_memory")

RUN = 0.1
"""Of the mutants that pass and are tiny: this share is run."""
TINY = 10_000
"""Rounds × runs × clients that are played in a moment."""


def call(arguments):
    """Exit code, what was printed, and the traceback if there is one."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            code, trace = cli.main(arguments), ""
        except SystemExit as stop:
            code, trace = stop.code, ""
        except BaseException:
            code, trace = None, traceback.format_exc(limit=-4)
    return code, out.getvalue(), err.getvalue(), trace


def problem(code, out, err, trace, mistakes):
    """What a command did wrong, or None."""
    if trace:
        return trace
    if code not in (cli.OK, cli.FAILED, cli.BAD_SPEC):
        return f"exit code {code}"
    lines = err.splitlines()
    if code == cli.OK:
        return f"says {lines}" if lines else None
    if not lines or len(set(lines)) < len(lines) or not all(": " in x and x.isprintable() for x in lines):
        return f"says {err!r}"
    if mistakes and len(lines) > 12 * mistakes:
        return f"says {len(lines)} lines on {mistakes} mistakes"
    return None


def run_problem(spec, overrides, out):
    """What running a spec that passes does wrong, or None."""
    code, _, err, trace = call(["run", str(spec), *overrides, "--out", str(out), "--quiet", "--no-report"])
    if trace or (err and len(err.splitlines()) != 1):
        return trace or err
    if code != cli.OK:  # data that are missing, or too few for so many clients, show when they are read
        return None if code in (cli.FAILED, cli.BAD_SPEC) and err else f"exit code {code}, {err!r}"
    result = pausejax.open(out).load()
    if "diverged_round" in result:
        result = result.isel(run=result["diverged_round"].values == 0)
    for name in ("reward", "regret", "elapsed", "round_latency", "train_loss", "test_loss", "mse"):
        if name in result:
            # Runs that stop at a simulated time leave fill values behind them.
            rounds = 1 if "stop_at_latency" in result.attrs["spec"] else None
            if not np.isfinite(result[name].values[:, :rounds]).all():
                return f"{name} is not finite"
    return None


@pytest.mark.slow
def test_no_mistake_is_a_traceback_and_none_is_believed(tmp_path, request):
    count, codes, ran, found = request.config.getoption("--mutations"), {}, 0, []
    first = request.config.getoption("--first-seed")
    for seed in range(first, first + count):
        text, overrides, mistakes = mutants.mutant(seed)
        spec = tmp_path / "spec.toml"
        spec.write_bytes(text if isinstance(text, bytes) else text.encode())
        arguments = [part for override in overrides for part in ("--set", override)]
        code, out, err, trace = call(["plan", str(spec), *arguments])
        codes[code] = codes.get(code, 0) + 1
        wrong = problem(code, out, err, trace, mistakes)
        if not wrong and code == cli.OK and random.Random(seed).random() < RUN and _is_tiny(spec, overrides):
            ran += 1
            wrong = run_problem(spec, arguments, tmp_path / f"out-{seed}")
        if wrong:
            found.append(f"mutant {seed} {overrides}: {wrong}")
        if seed % 500 == 499:
            jax.clear_caches()
            print(f"{seed + 1 - first} mutants: {codes}; {ran} were run; {found}", flush=True)
    print(f"{count} mutants from seed {first}: {codes}; {ran} were run")
    assert not found, f"{len(found)} of {count}:\n" + "\n".join(found[:20])
    assert count < 100 or (codes.get(cli.OK, 0) > count / 20 and codes[cli.BAD_SPEC] > count / 3 and ran)


def _is_tiny(spec, overrides):
    from pausejax import kinds
    from pausejax.study.plan import make_plan

    plan = make_plan(kinds.load(spec, overrides))
    clients = max(run.values["num_clients"] for run in plan.runs)
    samples = max(run.values.get("batch_size", 1) * run.values.get("local_epochs", 1) for run in plan.runs)
    return len(plan.runs) * plan.study.rounds * clients <= TINY and samples <= 100 and len(plan.groups) <= 3
