"""From a group of runs to the static program that they share."""

from collections.abc import Mapping
from functools import partial
from typing import Any

import jax.numpy as jnp
import numpy as np

from pausejax.clients.learning import learning_of
from pausejax.clients.parameters import learns
from pausejax.clients.program import Files, Program
from pausejax.clients.quantities import parts_of
from pausejax.data.dataset import Dataset
from pausejax.data.host import Sources
from pausejax.data.partition import Partition, split
from pausejax.data.sources import load
from pausejax.federated.learning import Learning
from pausejax.parts import Bound, File, Part, PartError, bind
from pausejax.parts.files import read_numbers
from pausejax.study.spec import SpecError
from pausejax.study.study import Group, Plan, Study
from pausejax.study.trials import Layout

_ROUNDS_PER_CALL = 25


def build_program(
    plan: Plan, group: Group, sources: Sources, backend: str = "", layout: Layout | None = None
) -> Program:
    """The static program of a group for a backend such as "cpu", JAX's default one if not given.

    Learning lies on the device by `layout`, or as `federated.placement.choose` says.

    Raises:
      SpecError: the data can't be shared out among so many clients, or a part refuses the rest.
    """
    study, static, runs = plan.study, group.static, plan.runs_of(group)
    learning = _learning(plan, group, sources, backend, layout) if learns(study.mode) else None
    known = {**static, "num_parameters": learning.num_parameters if learning else 0}
    traced = [name for name, parameter in study.words.parameters.items() if parameter.traced]

    def bound(category: str, name: str) -> Bound:
        return bind(study.parts.get(category, name), known, traced, complete=True)

    files: Files = {name: jnp.asarray(read) for name, read in files_of(study, static, sources).items()}
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
            quantities=tuple(bind(part, known, traced, complete=True) for part in parts_of(study)),
            learning=learning,
        )
        hyper = {name: jnp.float32(value) for name, value in traced_values(study, runs[0].values).items()}
        for build in (program.build, program.build_law, program.build_availability):
            build(hyper, files)
    except SpecError:
        raise
    except PartError as error:
        raise SpecError([str(error)]) from None
    except ValueError as error:
        raise SpecError([f"policy {runs[0].policy}: {error}"]) from None
    return program


def traced_values(study: Study, values: Mapping[str, Any]) -> dict[str, float]:
    """Those of a run's values that are traced."""
    return {name: value for name, value in values.items() if study.words.parameters[name].traced}


def part_of(study: Study, category: str, static: Mapping[str, Any]) -> Part:
    """The part of a category that a group's static values name."""
    return study.parts.get(category, static[category])


def dataset_of(study: Study, static: Mapping[str, Any], sources: Sources) -> Dataset:
    """A group's data set, on the host, with the training samples that it uses.

    Raises:
      SpecError: the part that makes it can't be used like that.
    """
    part = part_of(study, "dataset", static)
    values = {
        name: study.folder / static[name] if isinstance(static[name], File) else static[name]
        for name in sorted(part.reads & static.keys())
    }
    key = ("dataset", part.name, *(str(value) for value in values.values()))
    try:
        whole = sources.read(key, lambda: load(part, sources.data_dir, **values))
    except ValueError as error:
        raise SpecError([str(error)]) from None
    count = static["train_samples"]
    return sources.make((*key, count), lambda: whole.first(count))


def partition_of(study: Study, static: Mapping[str, Any], seed: int, sources: Sources) -> Partition:
    """Who owns which training sample in the runs of one seed.

    Raises:
      SpecError: the data can't be shared out like that.
    """
    part, dataset = part_of(study, "partition", static), dataset_of(study, static, sources)
    options = {name: static[name] for name in sorted(part.reads & static.keys())}
    clients = static["num_clients"]
    key = ("partition", part, id(dataset), clients, seed, *options.items())
    try:
        return sources.make(
            key,
            lambda: split(part, dataset.train_targets, clients, seed, owner=dataset.owner, **options),
        )
    except PartError as error:
        raise SpecError([str(error)]) from None
    except ValueError as error:
        raise SpecError([f'data.partition = "{part.name}": {error}']) from None


def files_of(study: Study, static: Mapping[str, Any], sources: Sources) -> dict[str, np.ndarray]:
    """The numbers in the files that parts on the device read, float32 [rows, K], by parameter.

    Raises:
      SpecError: a file can't be read, or holds no table of K columns of numbers.
    """
    found = {}
    for category in ("latency", "availability"):
        for name, parameter in part_of(study, category, static).parameters.items():
            if parameter.kind is File:
                path = study.folder / static[name]
                try:
                    read = partial(read_numbers, path, static["num_clients"])
                    found[name] = sources.read(("numbers", str(path)), read)
                except ValueError as error:
                    key = f'{parameter.section}.{name} = "{static[name]}"'
                    raise SpecError([f"{key}: {error}"]) from None
    return found


def _learning(plan: Plan, group: Group, sources: Sources, backend: str, layout: Layout | None) -> Learning:
    study, static, runs = plan.study, group.static, plan.runs_of(group)
    dataset = dataset_of(study, static, sources)
    seeds = {run.seed for run in runs}
    longest = max(int(partition_of(study, static, seed, sources).sizes.max()) for seed in seeds)
    proximal = any(run.values["proximal_weight"] > 0 for run in runs)
    try:
        traced = traced_values(study, runs[0].values)
        return learning_of(
            study.parts,
            static,
            dataset,
            longest,
            proximal=proximal,
            traced=traced,
            backend=backend,
            layout=layout,
        )
    except PartError as error:
        raise SpecError([str(error)]) from None
    except ValueError as error:
        raise SpecError([f"training.{error}"]) from None
