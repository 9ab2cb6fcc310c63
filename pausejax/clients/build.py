"""From a group of runs to the static program that they share."""

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from pausejax.clients.program import Learning, Program
from pausejax.data.dataset import Dataset
from pausejax.data.host import Sources
from pausejax.data.partition import Partition
from pausejax.federated import placement
from pausejax.federated.models import build
from pausejax.federated.training import LocalTraining
from pausejax.parts import Bound, File, Part, PartError, bind
from pausejax.parts.files import read_numbers
from pausejax.study.spec import SpecError
from pausejax.study.study import Group, Plan, Study

_ROUNDS_PER_CALL = 25


def build_program(plan: Plan, group: Group, sources: Sources) -> Program:
    """The static program of a group.

    Raises:
      SpecError: the data can't be shared out among so many clients, or a part refuses the rest.
    """
    study, static, first = plan.study, group.static, plan.runs_of(group)[0]
    learning = _learning(plan, group, sources) if study.mode == "training" else None
    known = {**static, "num_parameters": learning.num_parameters if learning else 0}
    traced = [name for name, parameter in study.words.parameters.items() if parameter.traced]

    def bound(category: str, name: str) -> Bound:
        return bind(study.parts.get(category, name), known, traced, complete=True)

    try:
        program = Program(
            policy=bound("policy", group.algorithm),
            latency=static["latency"],
            num_clients=static["num_clients"],
            clients_per_round=static["clients_per_round"],
            clock=static["clock"],
            rounds_per_call=min(study.rounds, _ROUNDS_PER_CALL),
            eval_every=study.eval_every,
            selection_gap=study.selection_gap,
            learning=learning,
        )
        program.build({name: jnp.float32(first.values[name]) for name in program.policy.traced})
    except PartError as error:
        raise SpecError([str(error)]) from None
    except ValueError as error:
        raise SpecError([f"policy {first.policy}: {error}"]) from None
    return program


def part_of(study: Study, category: str, static: Mapping[str, Any]) -> Part:
    """The part of a category that a group's static values name."""
    return study.parts.get(category, static[category])


def dataset_of(study: Study, static: Mapping[str, Any], sources: Sources) -> Dataset:
    """A group's data set, on the host."""
    part = part_of(study, "dataset", static)
    values = {
        name: study.folder / value if isinstance(value, File) else value
        for name, value in static.items()
        if name in part.parameters
    }
    key = ("dataset", part.name, *(str(value) for value in values.values()))
    return sources.read(key, lambda: part.build(**values, data_dir=sources.data_dir))


def partition_of(study: Study, static: Mapping[str, Any], seed: int, sources: Sources) -> Partition:
    """Who owns which training sample in the runs of one seed.

    Raises:
      SpecError: the data can't be shared out like that.
    """
    part = part_of(study, "partition", static)
    options = {name: static[name] for name in sorted(part.reads & static.keys())}
    dataset = dataset_of(study, static, sources)
    labels = dataset.train_labels[: static["train_samples"] or None]
    clients = static["num_clients"]
    key = ("partition", part.name, id(dataset), len(labels), clients, seed, *options.items())
    try:
        return sources.make(key, lambda: part.build(labels, clients, seed, **options))
    except ValueError as error:
        raise SpecError([f'data.partition = "{part.name}": {error}']) from None


def files_of(study: Study, static: Mapping[str, Any], sources: Sources) -> dict[str, np.ndarray]:
    """The numbers in the files that parts on the device read, float32 [rows, columns], by parameter.

    Raises:
      SpecError: a file can't be read, or holds no table of K columns of numbers.
    """
    found = {}
    for name, value in static.items():
        parameter = study.words.parameters[name]
        if isinstance(value, File) and value:
            path, key = study.folder / value, f'{parameter.section}.{name} = "{value}"'
            try:
                found[name] = sources.read(
                    ("numbers", str(path)), lambda path=path: read_numbers(path, static["num_clients"])
                )
            except ValueError as error:
                raise SpecError([f"{key}: {error}"]) from None
    return found


def _learning(plan: Plan, group: Group, sources: Sources) -> Learning:
    study, static, runs = plan.study, group.static, plan.runs_of(group)
    source = dataset_of(study, static, sources)
    network = part_of(study, "model", static)
    options = {name: static[name] for name in sorted(network.parameters)}
    try:
        model = sources.make(
            ("model", network.function, source.image_shape, source.num_classes, *options.items()),
            lambda: build(network, source.image_shape, source.num_classes, **options),
        )
    except ValueError as error:
        raise SpecError([f"training.{error}"]) from None
    longest = max(
        int(partition_of(study, static, seed, sources).sizes.max()) for seed in {run.seed for run in runs}
    )
    shapes = jax.eval_shape(model.init, jax.random.key(0))
    num_parameters = sum(leaf.size for leaf in jax.tree.leaves(shapes))
    chosen = placement.choose(
        jax.default_backend(), convolutional=model.convolutional, num_parameters=num_parameters
    )
    training = LocalTraining(
        **{
            name: static[name]
            for name in (
                "batch_size",
                "local_epochs",
                "max_steps",
                "persist_optimizer",
                "private",
                "clip",
            )
        },
        optimizer=bind(part_of(study, "optimizer", static), static),
        proximal=any(run.values["proximal_weight"] > 0 for run in runs),
        lanes=chosen.lanes,
        eval_lanes=chosen.eval_lanes,
        eval_batch=chosen.eval_batch,
    )
    return Learning(model, source.image_shape, longest, num_parameters, training)
