"""From a group of runs to what the simulation takes: the static program and the arrays of its world."""

import functools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from pausejax import data, parts
from pausejax.clients.learning import learning_of
from pausejax.clients.parameters import PARAMETERS
from pausejax.clients.program import Hyper, Program, World
from pausejax.data import partition
from pausejax.data.partition import Partition
from pausejax.ensemble import Pool, RegressionData, fit_pool, load_regression
from pausejax.federated import batches
from pausejax.federated.batches import HeldOut, TrainingData
from pausejax.federated.learning import Learning
from pausejax.policies import POLICIES, parameters_of
from pausejax.study.plan import Group, Plan, Run
from pausejax.study.spec import SpecError

_ROUNDS_PER_CALL = 25


_FIXED = {"task": "classification", "server_optimizer": "fedavg", "batch_statistics": "private"}


class HostData(NamedTuple):
    """What a study reads from files, on the host; arrays may be read-only."""

    datasets: Mapping[str, data.Dataset]
    tables: Mapping[str, RegressionData]
    traces: Mapping[str, np.ndarray]
    """By the file's path, [T, K]."""


class Sources:
    """The data sets of one study: each is read and moved to the device once.

    Args:
      data_dir: where files are.
      held: what has been read already, by another process maybe; no file is opened for it.
    """

    def __init__(self, data_dir: str | Path | None = None, held: HostData | None = None) -> None:
        self._data_dir = data_dir
        self._held = held or HostData({}, {}, {})
        # Caches of this study alone: they go, with the arrays on the device, when it goes.
        self.dataset = functools.cache(self._load_dataset)
        self.pool = functools.cache(self._fit_pool)
        self.table = functools.cache(self._load_table)
        self.partition = functools.cache(self._make_partition)
        self._on_device: dict[Any, tuple[jax.Array, jax.Array]] = {}
        self._test_sets: dict[tuple[str, int], HeldOut] = {}

    def _load_dataset(self, name: str) -> data.Dataset:
        """The named data set on the host."""
        return self._held.datasets.get(name) or data.load(name, self._data_dir)

    def _make_partition(self, name: str, dataset: str, samples: int, seed: int, **options: Any) -> Partition:
        """Who owns which of a data set's first samples; options as the partitioner takes them."""
        some = self.dataset(dataset).first(samples)
        return partition.split(name, some.train_targets, seed=seed, owner=some.owner, **options)

    def _fit_pool(self, dataset: str, **options: Any) -> Pool:
        """The experts of an ensemble study on a regression data set; options as in `fit_pool`."""
        return fit_pool(self.table(dataset), **options)

    def _load_table(self, dataset: str) -> RegressionData:
        """The named regression data set."""
        return self._held.tables.get(dataset) or load_regression(dataset, self._data_dir)

    def trace(self, static: Mapping[str, Any]) -> np.ndarray:
        """The measured latencies of a group, as `read_trace` gives them."""
        path = str(static["trace_file"])
        if static["latency"] == "trace" and path in self._held.traces:
            return self._held.traces[path]
        return read_trace(static)

    def host_data(self, mode: str, groups: Sequence[Group]) -> HostData:
        """Everything that some groups read from files.

        Raises:
          SpecError: a trace can't be read, or is none.
          ValueError: the same of a data set.
        """
        named = {group.static["dataset"] for group in groups if mode != "bandit"}
        if mode == "ensemble":
            return HostData({}, {name: self.table(name) for name in sorted(named)}, {})
        traced = [group.static for group in groups if group.static["latency"] == "trace"]
        return HostData(
            {name: self.dataset(name) for name in sorted(named)},
            {},
            {str(static["trace_file"]): self.trace(static) for static in traced},
        )

    def training_arrays(self, name: str, samples: int) -> tuple[jax.Array, jax.Array]:
        """Flat training inputs and targets on the device."""
        if (name, samples) not in self._on_device:
            some = self.dataset(name).first(samples)
            self._on_device[name, samples] = batches.flat(some.train_inputs), jnp.asarray(some.train_targets)
        return self._on_device[name, samples]

    def test_set(self, name: str, batch: int) -> HeldOut:
        """The whole test set on the device, in padded batches of at most `batch`."""
        if (name, batch) not in self._test_sets:
            self._test_sets[name, batch] = batches.held_out(self.dataset(name), batch)
        return self._test_sets[name, batch]


def build_program(plan: Plan, group: Group, sources: Sources) -> Program:
    """The static program of a group.

    Raises:
      SpecError: the data can't be shared out among so many clients, or the policy refuses the network.
    """
    static, study = group.static, plan.study
    learning = _learning(plan, group, sources) if study.mode == "training" else None
    wanted = sorted(parameters_of(group.algorithm))
    derived = {"num_parameters": learning.num_parameters} if learning else {}
    known = {**static, **derived}
    foreign = [name for name in wanted if name not in known and not _is_traced(name)]
    if foreign:
        raise SpecError([f"policy {group.algorithm}: takes {foreign[0]}, which is no parameter of a spec"])
    options = {name: known[name] for name in wanted if not _is_traced(name)}
    program = Program(
        policy=group.algorithm,
        constructor=POLICIES[group.algorithm],
        options=tuple(options.items()),
        traced=tuple(name for name in wanted if _is_traced(name)),
        num_clients=static["num_clients"],
        clients_per_round=static["clients_per_round"],
        latency=static["latency"],
        clock=static["clock"],
        rounds_per_call=min(study.rounds, _ROUNDS_PER_CALL),
        eval_every=study.eval_every,
        selection_gap=study.selection_gap,
        learning=learning,
    )
    first = plan.runs[group.members[0]]
    try:
        program.build({name: jnp.float32(first.values[name]) for name in program.traced})
    except ValueError as error:
        raise SpecError([f"policy {first.policy}: {error}"]) from None
    return program


def build_world(plan: Plan, program: Program, group: Group, sources: Sources) -> World:
    """The arrays that the runs of one group live in, one row per run, in its order, where they differ."""
    runs = [plan.runs[position] for position in group.members]
    seeds = sorted({run.seed for run in runs})
    row_of = {seed: row for row, seed in enumerate(seeds)}
    static = group.static
    training_data: TrainingData | None = None
    test: HeldOut | None = None
    if program.learning:
        partitions = [make_partition(static, seed, sources) for seed in seeds]
        share = np.stack([part.data_share for part in partitions])
        inputs, targets = sources.training_arrays(static["dataset"], static["train_samples"])
        scale = batches.scale(sources.dataset(static["dataset"]))
        training_data = batches.training_data(inputs, targets, scale, partitions)
        test = sources.test_set(static["dataset"], program.learning.training.eval_batch)
    else:
        share = np.full((len(seeds), program.num_clients), 1 / program.num_clients, np.float32)
    rows = np.array([row_of[run.seed] for run in runs], np.int32)
    return World(
        seed=jnp.asarray([run.seed for run in runs], jnp.uint32),
        data_share=jnp.asarray(share[rows]),
        partition=jnp.asarray(rows),
        trace=jnp.asarray(sources.trace(static)),
        data=training_data,
        test=test,
    )


def build_hyper(runs: Sequence[Run]) -> Hyper:
    """The traced hyper-parameters of some runs of one group, float32 [R] each."""
    names = [name for name in runs[0].values if PARAMETERS[name].traced]
    return {name: jnp.asarray([run.values[name] for run in runs], jnp.float32) for name in names}


def read_trace(values: Mapping[str, Any]) -> np.ndarray:
    """Latencies [T, K] of the law `trace`; [0, K] for the others.

    Raises:
      SpecError: the file can't be read, or has other than K columns of positive numbers.
    """
    path, clients = values["trace_file"], values["num_clients"]
    if values["latency"] != "trace":
        return np.zeros((0, clients), np.float32)
    try:
        read = np.load(path) if str(path).endswith(".npy") else np.loadtxt(path, delimiter=",", ndmin=2)
        read = np.asarray(read, np.float64)
    except (OSError, ValueError, TypeError, EOFError) as error:
        raise SpecError([f'network.trace_file = "{path}": can\'t be read: {error}']) from None
    if (
        read.ndim != 2
        or not len(read)
        or read.shape[1] != clients
        or not (np.isfinite(read) & (read > 0)).all()
    ):
        raise SpecError(
            [
                f'network.trace_file = "{path}": must have num_clients = {clients} columns of positive '
                f"seconds, has shape {read.shape}"
            ]
        )
    return read.astype(np.float32)


def _is_traced(name: str) -> bool:
    return name in PARAMETERS and PARAMETERS[name].traced


def _learning(plan: Plan, group: Group, sources: Sources) -> Learning:
    static = group.static
    dataset = sources.dataset(static["dataset"])
    seeds = {plan.runs[position].seed for position in group.members}
    longest = max(int(make_partition(static, seed, sources).sizes.max()) for seed in seeds)
    proximal = any(plan.runs[position].values["proximal_weight"] > 0 for position in group.members)
    try:
        return learning_of(parts.everything(), _FIXED | static, dataset, longest, proximal=proximal)
    except ValueError as error:
        raise SpecError([str(error)]) from None


def make_partition(values: Mapping[str, Any], seed: int, sources: Sources) -> Partition:
    """Who owns which training sample in the runs of one seed.

    Raises:
      SpecError: the data can't be shared out like that.
    """
    name = values["partition"]
    reads = parts.find("partition", name).reads
    try:
        return sources.partition(
            name,
            values["dataset"],
            values["train_samples"],
            seed,
            num_clients=values["num_clients"],
            **{option: values[option] for option in sorted(reads) if option in PARAMETERS},
        )
    except ValueError as error:
        raise SpecError([f'data.partition = "{name}": {error}']) from None
