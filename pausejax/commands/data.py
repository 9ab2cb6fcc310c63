"""The command `pausejax data`: fetches a data set and draws it, and how a study would share it out."""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console


def add_parser(
    commands: argparse._SubParsersAction, parents: list[argparse.ArgumentParser]
) -> argparse.ArgumentParser:
    """Adds the command to the command line; `parents` bring --set, --data-dir and --quiet."""
    parser: argparse.ArgumentParser = commands.add_parser(
        "data", parents=parents, help="prepare a data set; draw samples and who owns what"
    )
    parser.add_argument("name", metavar="NAME", help="digits, mnist, fashion_mnist or cifar10")
    parser.add_argument("--out", metavar="DIR", default=".", help="where the pictures go (default: here)")
    parser.add_argument("--partition", metavar="NAME", default="iid", help="the partitioner (default: iid)")
    parser.add_argument("--num-clients", metavar="K", type=int, default=30, help="clients (default: 30)")
    parser.add_argument("--seed", metavar="S", type=int, default=0, help="of the partition (default: 0)")
    return parser


def run(options: argparse.Namespace, console: "Console") -> None:
    """Prepares the data set, draws a sheet of samples and the partition, and says what there is.

    Raises:
      SpecError: an option is out of its range; names it and what is allowed.
      FileNotFoundError: the data set is not here and can't be fetched.
    """
    from pausejax import parts
    from pausejax.clients.build import Sources, make_partition
    from pausejax.data import pictures
    from pausejax.report import save

    values, seed = _checked(options)
    name = values["dataset"]
    sources = Sources(options.data_dir)
    dataset = sources.dataset(name)
    shares = make_partition(values, seed, sources)
    labels = dataset.first(values["train_samples"]).train_targets
    taken = parts.find("partition", values["partition"]).parameters
    settings = [f"{option} {values[option]:g}" for option in taken]
    how = ", ".join([values["partition"], *settings, f"{values['num_clients']} clients, seed {seed}"])
    directory = Path(options.out)
    directory.mkdir(parents=True, exist_ok=True)
    figures = {
        f"{name}_samples": pictures.sample_sheet(dataset),
        f"{name}_{values['partition']}": pictures.partition_picture(shares, labels, f"{name}: {how}"),
    }
    save(figures, directory)
    if options.quiet:
        return
    height, width, channels = dataset.input_shape
    train, test = len(dataset.train_targets), len(dataset.test_targets)
    counts = shares.label_counts(labels)
    dominant = counts.max(axis=1) / counts.sum(axis=1)
    for line in (
        f"{name}: {train:,} training and {test:,} test images, {height}×{width}×{channels}, "
        f"{dataset.classes} classes",
        f"{how}: {len(labels):,} images, {shares.sizes.min():,} to {shares.sizes.max():,} a client; "
        f"the commonest label is {dominant.mean():.0%} of a client's data on average",
        f"pictures in {directory} (PNG and PDF): {', '.join(figures)}",
    ):
        console.print(line, markup=False)


def _checked(options: argparse.Namespace) -> tuple[dict[str, Any], int]:
    """Every parameter's value and the seed, checked as a study's are, with a study's defaults."""
    from pausejax.study import spec

    document = {
        "seeds": [options.seed],
        "network": {"num_clients": options.num_clients, "clients_per_round": 1},
        "data": {"dataset": options.name, "partition": options.partition},
        "policy": [{"name": "random"}],
    }
    study = spec.parse(document, source="pausejax data", overrides=options.set)
    values = {**study.axes, "seeds": study.seeds}
    swept = [f"pausejax data: {name}: takes one value, no axis" for name in values if len(values[name]) > 1]
    if swept:
        raise spec.SpecError(swept)
    return {name: axis[0] for name, axis in study.axes.items()}, study.seeds[0]
