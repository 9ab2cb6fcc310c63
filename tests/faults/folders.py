"""Folders as studies leave them: finished, and killed in mid-run with parts and checkpoints."""

import contextlib
import os
import signal
import subprocess
import sys
import time

import tomli_w

GATE = '''"""A quantity that tells where a study is, and keeps it there while somebody wants that."""

import os
import pathlib
import time

import jax
import jax.numpy as jnp
import numpy as np

from pausejax import parts


def _pass(round):
    folder = os.environ.get("GATE")
    if folder and int(np.max(round)) >= int(os.environ.get("GATE_ROUND", "1")):
        held = pathlib.Path(folder, "hold")
        if held.exists():
            pathlib.Path(folder, "reached").touch()
        while held.exists():
            time.sleep(0.01)
    return np.zeros(np.shape(round), np.float32)


@parts.quantity()
def gate(seen):
    return jax.pure_callback(
        _pass, jax.ShapeDtypeStruct((), jnp.float32), seen.round, vmap_method="broadcast_all"
    )
'''


def command(spec, out, *more):
    return [sys.executable, "-m", "pausejax", "run", str(spec), "--out", str(out), "--no-report", *more]


def play(spec, out, *more):
    """Plays a study to its end, in a process of its own."""
    done = subprocess.run(command(spec, out, "--quiet", *more), capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def write(folder, document, name="spec.toml"):
    """Writes a spec with the gate beside it."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text(tomli_w.dumps(document))
    (folder / "gate.py").write_text(GATE)
    return folder / name


def gated(document):
    """The same study, which can be held in mid-run."""
    return {**document, "use": ["gate.py"], "quantities": ["gate"]}


def start_and_hold(spec, out, round, *more):
    """Starts a study in a process of its own and returns when it plays some round, where it waits."""
    gate = out.parent / "gate"
    gate.mkdir(exist_ok=True)
    (gate / "hold").touch()
    (gate / "reached").unlink(missing_ok=True)
    process = subprocess.Popen(
        command(spec, out, "--quiet", *more),
        env={**os.environ, "GATE": str(gate), "GATE_ROUND": str(round)},
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    while not (gate / "reached").exists():
        assert process.poll() is None, process.communicate()[1]
        time.sleep(0.02)
    return process, gate


def kill(process):
    """Ends a process and all that it has started, at once."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    if process.stderr:
        process.stderr.close()
