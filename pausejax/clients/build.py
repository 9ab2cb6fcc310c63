"""From a group of runs to what the simulation takes: the static program and the arrays of its world."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from pausejax.clients.learning import client_shares, learning_of, world_of
from pausejax.clients.program import Hyper, Program, World
from pausejax.data.host import Sources
from pausejax.parts import Bound, File, PartError, bind
from pausejax.parts.files import read_numbers
from pausejax.study.spec import SpecError
from pausejax.study.study import Group, Plan, Run, Study

_ROUNDS_PER_CALL = 25


def build_program(plan: Plan, group: Group, sources: Sources) -> Program:
    """The static program of a group.

    Raises:
      SpecError: the data can't be shared out among so many clients, or a part refuses the network.
    """
    study, static, runs = plan.study, group.static, plan.runs_of(group)
    first = runs[0]
    learning = learning_of(study, static, runs, sources) if study.mode == "training" else None
    derived = {"num_parameters": learning.num_parameters if learning else 0}

    def bound(category: str, name: str) -> Bound:
        part = study.parts.get(category, name)
        return bind(part, static, study.words.parameters, derived)

    try:
        program = Program(
            policy=bound("policy", group.algorithm),
            law=bound("latency", static["latency"]),
            availability=bound("availability", static["availability"]),
            num_clients=static["num_clients"],
            clients_per_round=static["clients_per_round"],
            clock=static["clock"],
            rounds_per_call=min(study.rounds, _ROUNDS_PER_CALL),
            eval_every=study.eval_every,
            selection_gap=study.selection_gap,
            failure_stage=static["failure_stage"]
            if any(run.values["failure_probability"] > 0 for run in runs)
            else None,
            learning=learning,
        )
        files = read_files(study, static)
        program.policy.build({name: jnp.float32(first.values[name]) for name in program.policy.traced}, files)
    except PartError as error:
        raise SpecError([str(error)]) from None
    except ValueError as error:
        raise SpecError([f"policy {first.policy}: {error}"]) from None
    return program
