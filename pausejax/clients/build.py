"""From a group of runs to the static program that they share."""

from collections.abc import Mapping
from functools import partial
from typing import Any, cast

import jax.numpy as jnp
import numpy as np

from pausejax import network, privacy
from pausejax.clients.checks import NEEDS_LEARNING
from pausejax.clients.parameters import learns
from pausejax.clients.program import Files, Program
from pausejax.clients.quantities import parts_of
from pausejax.data.dataset import Dataset
from pausejax.data.host import Sources
from pausejax.data.partition import Partition, split
from pausejax.data.sources import load
from pausejax.federated.build import learning_of
from pausejax.federated.learning import Learning
from pausejax.federated.placement import ConvVariant, Placement
from pausejax.parts import CATEGORIES, Bound, File, Part, PartError, bind
from pausejax.parts.files import read_numbers
from pausejax.study.runs import Group
from pausejax.study.simulation import Layout
from pausejax.study.spec import SpecError
from pausejax.study.study import Study

_ROUNDS_PER_CALL = 25


def build_program(
    study: Study, group: Group, sources: Sources, backend: str = "", layout: Layout | None = None
) -> Program:
    """The static program of a group for a backend such as "cpu", JAX's default one if not given.

    Learning lies on the device by `layout`, or as `federated.placement.choose` says.

    Raises:
      SpecError: the data can't be shared out among so many clients, or a part refuses the rest.
    """
    static, runs = static_values(group), group.runs
    learning = _learning(study, group, sources, backend, layout) if learns(study.mode) else None
    known = {**static, **_sizes(study, static, learning)}
    traced = [name for name, parameter in study.words.parameters.items() if parameter.traced]

    def bound(part: Part, **instead: int) -> Bound:
        if "num_parameters" in part.given and "num_parameters" not in known:
            raise PartError(
                f'{part.where}: num_parameters: is known in mode "training" alone; with a default in the '
                'signature it is a parameter, which a spec of mode "bandit" can give'
            )
        return bind(part, {**known, **instead}, traced, complete=True)

    files: Files = {name: jnp.asarray(read) for name, read in files_of(study, group, sources).items()}
    try:
        hyper = {name: jnp.float32(value) for name, value in traced_values(study, runs[0].values).items()}
        ending = bound(part_of(study, "ending", static))
        mechanism = bound(part_of(study, "mechanism", static))
        built = network.checked_ending(ending.build(**hyper, **files), ending.part)
        chosen = built.chooses or static["clients_per_round"]
        guard = privacy.checked_mechanism(mechanism.build(**hyper, **files), mechanism.part)
        trusts_server = guard.server is not None
        if built.waiting and learning:
            _check_waiting(learning, ending.part)
        if trusts_server and learning:
            _check_trusted(learning, mechanism.part)
        program = Program(
            policy=bound(study.parts.get("policy", group.algorithm), clients_per_round=chosen),
            law=bound(part_of(study, "latency", static)),
            availability=bound(part_of(study, "availability", static)),
            ending=ending,
            mechanism=mechanism,
            trusts_server=trusts_server,
            waits_for_all=built.waits_for_all,
            waiting=built.waiting,
            slots=chosen,
            late=static["late"],
            limits_releases=runs[0].values["stop_at_epsilon"] > 0,
            num_clients=static["num_clients"],
            clients_per_round=static["clients_per_round"],
            clock=static["clock"],
            rounds_per_call=min(study.rounds, _ROUNDS_PER_CALL),
            eval_every=study.eval_every,
            selection_gap=study.selection_gap,
            failure_stage=static["failure_stage"] if runs[0].values["failure_probability"] > 0 else None,
            quantities=tuple(map(bound, parts_of(study))),
            learning=learning,
        )
        policy = program.build(hyper, files)
        program.build_law(hyper, files)
        program.build_availability(hyper, files)
        if trusts_server and policy.needs_updates:
            why = f"not with {mechanism.part.where}, which leaves them as they are"
            raise PartError(f"{program.policy.part.where}: selects by updates; {why}")
        if program.limits_releases and learning and learning.in_the_clear:
            statistics = learning.training.batch_statistics
            raise PartError(
                f'privacy.batch_statistics = "{statistics}": leaks without limit; not with stop_at_epsilon'
            )
        if not learning and (policy.needs_learning or policy.needs_updates):
            raise PartError(f"{program.policy.part.where}: {NEEDS_LEARNING}")
    except SpecError:
        raise
    except PartError as error:
        raise SpecError([str(error)]) from error
    except ValueError as error:
        raise SpecError([f"policy {runs[0].policy}: {error}"]) from error
    return program


def _check_waiting(learning: Learning, part: Part) -> None:
    """Refuses what clients keep from round to round if they may be at work when a round closes.

    Raises:
      PartError: the algorithm or batch norm keeps something.
    """
    why = f"its clients keep a state; not with {part.where}"
    if learning.keeps_client_states:
        raise PartError(f'training.federated_algorithm = "{learning.algorithm.name}": {why}')
    if learning.keeps_statistics:
        raise PartError(f'privacy.batch_statistics = "local": {why}')
    if learning.aggregator.name != "mean":
        why = f'must be "mean" with {part.where}, whose old updates weigh less'
        raise PartError(f'training.aggregator = "{learning.aggregator.name}": {why}')


def _check_trusted(learning: Learning, part: Part) -> None:
    """Refuses what a server that adds noise to the mean can't protect.

    Raises:
      PartError: updates are not averaged, or some of them is sent in the clear.
    """
    name, statistics = learning.aggregator.name, learning.training.batch_statistics
    if name != "mean":
        raise PartError(f'training.aggregator = "{name}": must be "mean" with {part.where}')
    if learning.in_the_clear:
        allowed = f'must be "private" or "local" with {part.where}'
        raise PartError(f'privacy.batch_statistics = "{statistics}": {allowed}')


def _sizes(study: Study, static: Mapping[str, Any], learning: Learning | None) -> dict[str, int]:
    """Returns `num_parameters`, how many numbers a client sends, where it is known beside the spec.

    Raises:
      SpecError: the spec gives another number than the model has.
    """
    if not learning:
        return {}
    size, name = learning.num_parameters, "num_parameters"
    if static.get(name, size) != size:
        key = f"{study.words.parameters[name].section}.{name}"
        raise SpecError([f"{key} = {static[name]}: must be {size}, what a client with this model sends"])
    return {name: size}


def static_values(group: Group) -> dict[str, Any]:
    """Returns a group's static values, with the parts that older words of a spec name.

    `private = false` is the mechanism "none", and a proximal weight with "fedavg" is "fedprox".
    """
    found = dict(group.static)
    if found.get("private") is False:
        found["mechanism"] = "none"
    if group.runs[0].values.get("proximal_weight", 0.0) > 0 and found["federated_algorithm"] == "fedavg":
        found["federated_algorithm"] = "fedprox"
    return found


def traced_values(study: Study, values: Mapping[str, Any]) -> dict[str, float]:
    """Those of a run's values that are traced."""
    return {name: value for name, value in values.items() if study.words.parameters[name].traced}


def part_of(study: Study, category: str, static: Mapping[str, Any]) -> Part:
    """The part of a category that a group's static values name."""
    return study.parts.get(category, static[CATEGORIES[category].key])


def dataset_of(study: Study, static: Mapping[str, Any], sources: Sources) -> Dataset:
    """A group's data set, on the host, with the training samples that it uses.

    Raises:
      SpecError: the part that makes it can't be used like that.
    """
    part, static = part_of(study, "dataset", static), _on_host(study, static)
    values = {name: static[name] for name in sorted(part.reads & static.keys())}
    key = ("dataset", part.name, *(str(value) for value in values.values()))
    try:
        whole = sources.read(key, lambda: load(part, sources.data_dir, **values))
    except ValueError as error:
        raise SpecError([str(error)]) from error
    count = static["train_samples"]
    return sources.make((*key, count), lambda: whole.first(count))


def partition_of(study: Study, static: Mapping[str, Any], seed: int, sources: Sources) -> Partition:
    """Who owns which training sample in the runs of one seed.

    Raises:
      SpecError: the data can't be shared out like that.
    """
    part, dataset = part_of(study, "partition", static), dataset_of(study, static, sources)
    values, clients = _on_host(study, static), static["num_clients"]
    options = {name: values[name] for name in sorted(part.reads & static.keys())}
    key = ("partition", part, id(dataset), clients, seed, *options.items())
    try:
        return sources.make(
            key,
            lambda: split(part, dataset.train_targets, clients, seed, owner=dataset.owner, **options),
        )
    except PartError as error:
        raise SpecError([str(error)]) from error
    except ValueError as error:
        raise SpecError([f'data.partition = "{part.name}": {error}']) from error


def _on_host(study: Study, static: Mapping[str, Any]) -> dict[str, Any]:
    """Returns a group's static values as parts on the host take them: files by their whole paths."""
    return {
        name: File(study.folder / value) if isinstance(value, File) and value else value
        for name, value in static.items()
    }


def files_of(study: Study, group: Group, sources: Sources) -> dict[str, np.ndarray]:
    """Reads the tables that a group's parts on the device are given, float32 [rows, columns], by parameter.

    What knows clients (policy, latency, availability) has a column for each. Optimizers know none, and read
    tables of any width.

    Raises:
      SpecError: a file is not given, can't be read, or holds no such table.
    """
    found, static = {}, static_values(group)
    for category in map(CATEGORIES.__getitem__, (study.kind.policy_category, *study.kind.categories)):
        if not category.on_device or (category.learning and not learns(study.mode)):
            continue
        part = study.parts.get(category.name, static[category.key] if category.key else group.algorithm)
        for name in sorted(name for name in part.reads if isinstance(static.get(name), File)):
            path, columns = study.folder / static[name], None if category.learning else static["num_clients"]
            key = f'{study.words.parameters[name].section}.{name} = "{static[name]}"'
            if not static[name]:
                raise SpecError([f"{key}: must be the path of a file, which {part.where} reads"])
            try:
                found[name] = sources.read(
                    ("numbers", str(path), columns), partial(read_numbers, path, columns)
                )
            except ValueError as error:
                raise SpecError([f"{key}: {error}"]) from error
    return found


def _learning(study: Study, group: Group, sources: Sources, backend: str, layout: Layout | None) -> Learning:
    static, runs = static_values(group), group.runs
    dataset = dataset_of(study, static, sources)
    seeds = {run.seed for run in runs}
    longest = max(int(partition_of(study, static, seed, sources).sizes.max()) for seed in seeds)
    contents = {str(study.folder / path): digest for path, digest in study.files.items()}
    tables = {name: table.shape for name, table in files_of(study, group, sources).items()}
    try:
        return learning_of(
            study.parts,
            _on_host(study, static),
            dataset,
            longest,
            traced=traced_values(study, runs[0].values).keys(),
            tables=tables,
            contents=contents,
            backend=backend,
            chosen=_placement(layout),
        )
    except PartError as error:
        raise SpecError([str(error)]) from error
    except ValueError as error:
        raise SpecError([f"training.{error}"]) from error


def _placement(layout: Layout | None) -> Placement | None:
    """What a layout says of learning, if it says anything."""
    if not layout or not layout.lanes:
        return None
    conv = cast(ConvVariant, layout.conv)
    return Placement(layout.lanes, layout.eval_lanes, layout.eval_batch, conv)
