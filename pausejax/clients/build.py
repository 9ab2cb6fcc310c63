"""Builds the static values that the runs of a group share."""

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any, cast

import jax.numpy as jnp
import numpy as np

from pausejax import network, privacy
from pausejax.clients.checks import NEEDS_LEARNING
from pausejax.clients.inputs import Files, StaticConfig
from pausejax.clients.parameters import learns
from pausejax.clients.quantities import parts_of
from pausejax.data.dataset import Dataset
from pausejax.data.held_out import hold_out
from pausejax.data.host import DataCache
from pausejax.data.partition import Partition, split
from pausejax.data.sources import load
from pausejax.federated.build import learning_of
from pausejax.federated.learning import Learning
from pausejax.federated.placement import ConvVariant, Placement
from pausejax.parts import CATEGORIES, Bound, File, Part, PartError, bind
from pausejax.parts.files import read_numbers
from pausejax.study.runs import Group, on_host
from pausejax.study.simulation import Layout
from pausejax.study.spec import SpecError, refuse_changed_files
from pausejax.study.study import Study

_ROUNDS_PER_CALL = 25


def build_config(
    study: Study, group: Group, cache: DataCache, backend: str = "", layout: Layout | None = None
) -> StaticConfig:
    """Builds the static values of a group for a backend such as "cpu"; "" is JAX's default backend.

    `layout` places learning on the device. Without a layout, `federated.placement.choose` places it.

    Raises:
      SpecError: there are too few samples for the clients, or a part refuses its arguments.
    """
    static, runs = static_values(group), group.runs
    learning = learning_of_group(study, group, cache, backend, layout) if learns(study.mode) else None
    known = {**static, **_sizes(study, static, learning)}
    traced = [name for name, parameter in study.words.parameters.items() if parameter.traced]

    def bound(part: Part, **instead: int) -> Bound:
        if "num_parameters" in part.given and "num_parameters" not in known:
            raise PartError(
                f'{part.where}: takes num_parameters, which is known only with mode = "training". For mode = '
                '"bandit", give num_parameters a default in the function\'s signature: a spec can then set it'
            )
        return bind(part, {**known, **instead}, traced, complete=True)

    files: Files = {name: jnp.asarray(read) for name, read in files_of(study, group, cache).items()}
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
        config = StaticConfig(
            policy=bound(study.parts.get("policy", group.algorithm), clients_per_round=chosen),
            law=bound(part_of(study, "latency", static)),
            availability=bound(part_of(study, "availability", static)),
            ending=ending,
            mechanism=mechanism,
            trusts_server=trusts_server,
            waits_for_all=built.waits_for_all,
            max_at_work=built.waiting,
            slots=chosen,
            late=static.get("late", "stopped"),
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
        policy = config.build(hyper, files)
        config.build_law(hyper, files)
        config.build_availability(hyper, files)
        if trusts_server and policy.needs_updates:
            why = f"with {mechanism.part.where} these updates have no noise. Choose another mechanism"
            raise PartError(f"{config.policy.part.where}: selects clients by their updates, but {why}")
        if config.limits_releases and learning and learning.in_the_clear:
            statistics = learning.training.batch_statistics
            raise PartError(
                f'privacy.batch_statistics = "{statistics}": these statistics are sent without noise, so '
                "their leakage has no limit. Remove stop_at_epsilon, or choose other batch_statistics"
            )
        if not learning and (policy.needs_learning or policy.needs_updates):
            raise PartError(f"{config.policy.part.where}: {NEEDS_LEARNING}")
    except SpecError:
        raise
    except PartError as error:
        raise SpecError([str(error)]) from error
    except ValueError as error:
        raise SpecError([f"policy {runs[0].policy}: {error}"]) from error
    return config


def _check_waiting(learning: Learning, part: Part) -> None:
    """Checks that learning allows an ending under which clients may still train when a round closes.

    Raises:
      PartError: the algorithm or batch norm keeps a client state, or the aggregator is not the mean.
    """
    why = f"its clients keep a state between rounds, which {part.where} does not allow"
    if learning.keeps_client_states:
        raise PartError(f'training.federated_algorithm = "{learning.algorithm.name}": {why}')
    if learning.keeps_statistics:
        raise PartError(f'privacy.batch_statistics = "local": {why}')
    if learning.aggregator.name != "mean":
        why = f'must be "mean", because {part.where} weights updates by their age'
        raise PartError(f'training.aggregator = "{learning.aggregator.name}": {why}')


def _check_trusted(learning: Learning, part: Part) -> None:
    """Checks that a server that adds noise to the mean can protect every update.

    Raises:
      PartError: the aggregator is not the mean, or clients send batch statistics without noise.
    """
    name, statistics = learning.aggregator.name, learning.training.batch_statistics
    if name != "mean":
        raise PartError(f'training.aggregator = "{name}": must be "mean" with {part.where}')
    if learning.in_the_clear:
        allowed = f'must be "private" or "local" with {part.where}'
        raise PartError(f'privacy.batch_statistics = "{statistics}": {allowed}')


def _sizes(study: Study, static: Mapping[str, Any], learning: Learning | None) -> dict[str, int]:
    """Returns `num_parameters`, the count of numbers in a client's update; an empty dict without learning.

    Raises:
      SpecError: the spec sets `num_parameters` to a number that does not fit the model.
    """
    if not learning:
        return {}
    size, name = learning.num_parameters, "num_parameters"
    if static.get(name, size) != size:
        key = f"{study.words.parameters[name].section}.{name}"
        raise SpecError([f"{key} = {static[name]}: must be {size}, the number of values in an update"])
    return {name: size}


def static_values(group: Group) -> dict[str, Any]:
    """Returns a group's static values, with abbreviations replaced by the names of parts.

    `private = false` becomes the mechanism "none". With a proximal weight > 0, "fedavg" becomes "fedprox".
    """
    found = dict(group.static)
    if found.get("private") is False:
        found["mechanism"] = "none"
    if group.runs[0].values.get("proximal_weight", 0.0) > 0 and found["federated_algorithm"] == "fedavg":
        found["federated_algorithm"] = "fedprox"
    return found


def traced_values(study: Study, values: Mapping[str, Any]) -> dict[str, float]:
    """Returns the traced values of a run, by parameter name."""
    return {name: value for name, value in values.items() if study.words.parameters[name].traced}


def part_of(study: Study, category: str, static: Mapping[str, Any]) -> Part:
    """Returns the part of a category that a group's static values name."""
    return study.parts.get(category, static[CATEGORIES[category].key])


def dataset_of(study: Study, static: Mapping[str, Any], cache: DataCache) -> Dataset:
    """Loads a group's data set on the host, and returns it with only the training samples in use.

    Raises:
      SpecError: the data set can't be loaded with these values, or has fewer training samples than asked for.
    """
    part, static = part_of(study, "dataset", static), on_host(static, study.folder)
    values = part.values_from(static)
    key = ("dataset", part.name, *(str(value) for value in values.values()))
    try:
        whole = cache.read(key, lambda: load(part, cache.data_dir, **values))
    except ValueError as error:
        raise SpecError([str(error)]) from error
    count, most = static["train_samples"], len(whole.train_inputs)
    if count > most:
        allowed = f"must be at most {most}, the number of training samples of {part.name}; 0 takes all"
        raise SpecError([f"data.train_samples = {count}: {allowed}"])
    return cache.make((*key, count), lambda: whole.first(count))


def partition_of_seed(study: Study, static: Mapping[str, Any], seed: int, cache: DataCache) -> Partition:
    """Partitions the training samples among the clients for the runs of one seed.

    Raises:
      SpecError: the samples can't be partitioned among the clients with these values.
    """
    part, dataset = part_of(study, "partition", static), dataset_of(study, static, cache)
    values, clients = on_host(static, study.folder), static["num_clients"]
    options = part.values_from(values)
    key = ("partition", part, id(dataset), clients, seed, *options.items())
    share = static.get("held_out_share", 0.0)
    try:
        found = cache.make(
            key,
            lambda: split(part, dataset.train_targets, clients, seed, owner=dataset.owner, **options),
        )
    except PartError as error:
        raise SpecError([str(error)]) from error
    except ValueError as error:
        raise SpecError([f'data.partition = "{part.name}": {error}']) from error
    return cache.make((*key, "held out", share), lambda: hold_out(found, share, seed)) if share else found


def files_of(study: Study, group: Group, cache: DataCache) -> dict[str, np.ndarray]:
    """Reads the tables of a group's parts on the device, float32 [rows, columns], by parameter name.

    The tables of parts of learning, such as optimizers, have any number of columns. The tables of all other
    parts (policy, latency, availability) have one column for each client.

    Raises:
      SpecError: a file is not given, can't be read, or holds no table of this form.
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
                found[name] = cache.read(
                    ("numbers", str(path), columns), partial(read_numbers, path, columns)
                )
            except ValueError as error:
                raise SpecError([f"{key}: {error}"]) from error
    return found


def learning_of_group(
    study: Study, group: Group, cache: DataCache, backend: str, layout: Layout | None
) -> Learning:
    """Builds the static description of a group's learning for a backend, in the placement of `layout`.

    Raises:
      SpecError: the data can't be loaded, or the parts of learning do not fit together.
    """
    static, runs = static_values(group), group.runs
    dataset = dataset_of(study, static, cache)
    seeds = {run.seed for run in runs}
    longest = max(int(partition_of_seed(study, static, seed, cache).sizes.max()) for seed in seeds)
    contents = {str(study.folder / path): digest for path, digest in study.files.items()}
    tables = {name: table.shape for name, table in files_of(study, group, cache).items()}
    # These parts read their files on this machine, which may be a worker that begins later than the driver.
    of_host = [part_of(study, category, static) for category in ("model", "task", "partition")]
    read = {static[name] for part in of_host for name in part.reads if isinstance(static.get(name), File)}
    refuse_changed_files(
        replace(study, files={name: study.files[name] for name in read & study.files.keys()})
    )
    try:
        return learning_of(
            study.parts,
            on_host(static, study.folder),
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
    """Returns the placement of learning in a layout, or None if the layout has none."""
    if not layout or not layout.lanes:
        return None
    conv = cast(ConvVariant, layout.conv)
    return Placement(layout.lanes, layout.eval_lanes, layout.eval_batch, conv)
