"""`pausejax report`: writes the page and charts of a result, without executing the user's own files."""

import argparse
import hashlib
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pausejax.commands import options as common

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pausejax.plotting.chart import Chart


# Requests for which the name of the folder needs no digest. Their values contain only characters that the
# name keeps, and no underscores.
_PLAIN = re.compile(
    r"(?:(?:^| )--(?:measure(?: \w+)+|by \w+(?:,\w+)*|smooth \d+|where \w+=[^\W_]+(?:,\w+=[^\W_]+)*))+"
)


def add_to(commands: Any) -> None:
    """Adds the command to the command line."""
    parser = commands.add_parser(
        "report",
        parents=[common.quiet(), common.charts()],
        help="write the page and the charts of a result",
    )
    common.result(parser)
    parser.add_argument(
        "--out",
        metavar="FOLDER",
        type=common.folder,
        help="folder to write into; --measure, --where, --by and --smooth add a folder in it (default: DIR)",
    )
    parser.set_defaults(command=run)


def run(options: argparse.Namespace) -> None:
    """Writes the page of a result into its folder, and charts as files with --format or --chart."""
    write_report(options.directory, options, partial=options.partial, out=options.out or options.directory)


def write_report(
    directory: str,
    options: argparse.Namespace,
    formats: "Sequence[str]" = (),
    *,
    partial: bool = False,
    out: str = "",
) -> None:
    """Writes the page and the charts of the result in a folder, and prints their names.

    Args:
      directory: the folder of the result.
      options: the values of the options that `options.charts` adds.
      formats: formats of the chart files if neither --format nor --chart is given.
      partial: whether to show the finished runs of an unfinished study.
      out: the folder to write into; default: `directory`.

    Raises:
      SpecError: an option names something that the result does not have.
    """
    from pausejax.results.exchange import settled

    out = out or directory
    if in_words(options) or not report_search(directory, options, formats, out=out):
        # If the study is extended meanwhile, the page of the larger result must be the last one.
        tell(settled(directory, lambda: _write(directory, options, formats, partial, out)), options)


def _write(
    directory: str, options: argparse.Namespace, formats: "Sequence[str]", partial: bool, out: str
) -> list[str]:
    """Writes the page and the charts of a result, and returns the lines to print."""
    from pausejax import kinds, page
    from pausejax.analysis import select

    result = common.opened(directory, partial=partial)
    shown, asked = in_words(options), common.asked_for(options)
    common.check_asked(result, options)
    charts = kinds.charts(result, smoothing=options.smooth, **asked)
    omitted = kinds.omitted(result, **asked)
    if shown:
        whole = f"`pausejax report {directory}` shows the whole study"
        omitted.insert(0, f"this page shows a selection: {shown}. {whole}")
        # The page and the charts of the whole study stay as they are.
        out = within(out, shown)
        result = select(result, options.where)
    sweep = kinds.sweep_table(result)
    try:
        text = page.build(result, charts, notes=omitted, sweep=sweep, baseline=options.baseline)
    except ValueError as mistake:
        raise common.option_mistake(mistake) from mistake
    return _leave(directory, out, charts, text, options, formats, omitted, common.partial_line(result))


def report_search(
    directory: str, options: argparse.Namespace, formats: "Sequence[str]" = (), *, out: str = ""
) -> bool:
    """Writes the page and the charts of the search in a folder; returns whether there is a search.

    Raises:
      SpecError: an option names something that the search does not have.
      ValueError: the record of the search is damaged, or of another search.
      OSError: a file can't be read or written.
    """
    import numpy as np

    from pausejax.results import study_folder
    from pausejax.results.folder import Folder
    from pausejax.searches import report, search_file
    from pausejax.study.document import SpecError

    record = report.Record.read(Folder(directory))
    if record is None:
        return False
    if options.baseline is not None:
        way_out = f"Choose another baseline in `pausejax report {confirmation(directory)}`"
        raise SpecError(
            [f"--baseline {options.baseline}: the page of a search compares with the best setting. {way_out}"]
        )
    result, charts = study_folder.read(directory), report.charts(record)
    if not set(record.runs) <= set(result["identity"].values.tolist()):
        again = "The same `pausejax search` repairs it"
        raise ValueError(f"{directory}: {search_file.RECORD} is of another search. {again}")
    own = result.isel(run=np.flatnonzero(np.isin(result["identity"].values, record.runs)))
    text = report.build(record, own, charts)
    tell(_leave(directory, out or directory, charts, text, options, formats), options)
    return True


def confirmation(directory: str) -> str:
    """Returns the folder of the runs that repeat a search's best settings with fresh seeds."""
    from pausejax.searches.search_file import CONFIRMATION

    return f"{directory.rstrip('/')}/{CONFIRMATION}"


def _leave(
    directory: str,
    out: str,
    charts: "Mapping[str, Chart]",
    text: str,
    options: argparse.Namespace,
    formats: "Sequence[str]",
    omitted: "Sequence[str]" = (),
    partial: str = "",
) -> list[str]:
    """Writes the page `text` and the charts of a folder's result into `out`. Returns lines that name them.

    The final report replaces the page of a partial result. Charts of a partial result have separate names,
    because a picture does not say which runs it lacks.
    """
    from pausejax import page
    from pausejax.plotting.data import check_name
    from pausejax.results.folder import Folder
    from pausejax.study.document import SpecError

    named = options.chart
    if unknown := [name for name in named if name not in charts]:
        raise SpecError([f"--chart {unknown[0]}: must be one of {', '.join(charts) or 'no charts'}"])
    formats = tuple(dict.fromkeys(options.format or (("pdf",) if named else formats)))
    folder, size = Folder(out), (options.width, options.height)
    folder.write(page.NAME, text.encode())
    files = []
    for name in named or charts if formats else ():
        for format in formats:
            files.append(f"{'partial_' if partial else ''}{check_name(name)}.{format}")
            folder.write(files[-1], charts[name].encode(format, *size))
    where = f"the page with all charts: {out.rstrip('/')}/{page.NAME}"
    names = [f"in {out}: {', '.join(files)}"] if files else []
    older = older_charts(directory, out)
    return [*([partial] if partial else []), *names, *older, *omitted, where]


def older_charts(directory: str, out: str = "") -> list[str]:
    """Returns lines that name the pages and charts in both folders that are older than a result.

    Args:
      directory: the folder of the result.
      out: another folder with charts of the result.
    """
    from pausejax.results.exchange import outdated
    from pausejax.results.folder import Folder

    found = {place: outdated(Folder(directory), Folder(place)) for place in (directory, out or directory)}
    return [f"in {place}, older than the result: {', '.join(old)}" for place, old in found.items() if old]


def tell(lines: "Sequence[str]", options: argparse.Namespace) -> None:
    if not options.quiet:
        console = common.console()
        for line in lines:
            console.print(line, markup=False, soft_wrap=True)


def in_words(options: argparse.Namespace) -> str:
    """Returns the options --measure, --where, --by and --smooth as they are typed; "" if none is given."""
    where = ",".join(f"{key}={value}" for key, values in options.where.items() for value in values)
    named = {"measure": " ".join(options.measure), "where": where, "by": ",".join(options.by)}
    named["smooth"] = str(options.smooth) if options.smooth > 1 else ""
    return " ".join(f"--{name} {value}" for name, value in named.items() if value)


def within(directory: str, words: str) -> str:
    """Makes a folder inside `directory` with a name made from `words`, and returns its location.

    Raises:
      ValueError: the folder is a symbolic link.
      OSError: the folder can't be made.
    """
    from pausejax.plotting.data import file_names
    from pausejax.results.folder import Folder

    name = file_names([words])[0]
    cut = name != re.sub(r"\W+", "_", words).strip("_")
    if cut or not _PLAIN.fullmatch(words):
        # Without a digest, requests such as x = -1 and x = 1 would have the same name.
        name += f"_{hashlib.sha256(words.encode()).hexdigest()[:8]}"
    found = Folder(f"{directory.rstrip('/')}/{name}")
    if found.is_local and Path(found.path()).is_symlink():
        raise ValueError(f"{found}: must not be a link. Nothing was written")
    found.make()
    return found.location
