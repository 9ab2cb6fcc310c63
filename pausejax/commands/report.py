"""`pausejax report`: writes a result's page and charts. Nothing of the user's is executed."""

import argparse
from typing import TYPE_CHECKING, Any

from pausejax.commands import options as common

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pausejax.plotting.chart import Chart


def add_to(commands: Any) -> None:
    """Adds the command to the command line."""
    parser = commands.add_parser(
        "report",
        parents=[common.quiet(), common.charts()],
        help="write the page and the charts of a result",
    )
    common.result(parser)
    parser.set_defaults(command=run)


def run(options: argparse.Namespace) -> None:
    """Writes the page of a result into its folder, and charts as files where they are asked for."""
    write_report(options.directory, options)


def write_report(directory: str, options: argparse.Namespace, formats: "Sequence[str]" = ()) -> None:
    """Writes the page of the result in a folder, and charts as files, and says what there is.

    Args:
      directory: of the result.
      options: of `charts`.
      formats: of the files, where the options name none.

    Raises:
      SpecError: an option is not what the result has.
    """
    from pausejax import kinds, page
    from pausejax.analysis import select
    from pausejax.commands import asking
    from pausejax.results import store

    result = store.read(directory)
    common.check_asked(result, options)
    if not any(common.asked_for(options).values()) and report_search(directory, options, formats):
        return
    asked = common.asked_for(options)
    charts = kinds.charts(result, smoothing=options.smooth, **asked)
    omitted = kinds.omitted(result, **asked)
    if any(asked.values()):
        shown = asking.in_words(options)
        whole = f"`pausejax report {directory}` shows the whole study"
        omitted.insert(0, f"this page shows what was asked for: {shown}; {whole}")
        # The page and the charts of the whole study stay as they are.
        directory = asking.within(directory, shown)
        result = select(result, options.where)
    sweep = kinds.sweep_table(result)
    try:
        text = page.build(result, charts, notes=omitted, sweep=sweep, baseline=options.baseline)
    except ValueError as mistake:
        raise common.option_mistake(mistake) from mistake
    _leave(directory, charts, text, options, formats, omitted)


def report_search(directory: str, options: argparse.Namespace, formats: "Sequence[str]" = ()) -> bool:
    """Writes the page of the search in a folder, and charts as files; returns whether there is one.

    Raises:
      SpecError: an option is not what the search has.
      ValueError: the search is damaged.
      OSError: no space left, or the like.
    """
    from pausejax.results import store
    from pausejax.results.folder import Folder
    from pausejax.searches import report

    record = report.Record.read(Folder(directory))
    if record is None:
        return False
    charts = report.charts(record)
    best = store.read(confirmation(directory))
    try:
        text = report.build(record, store.read(directory), best, charts, options.baseline)
    except ValueError as mistake:
        raise common.option_mistake(mistake) from mistake
    _leave(directory, charts, text, options, formats)
    return True


def confirmation(directory: str) -> str:
    """Where the best of a search is played again."""
    return f"{directory.rstrip('/')}/confirmation"


def _leave(
    directory: str,
    charts: "Mapping[str, Chart]",
    text: str,
    options: argparse.Namespace,
    formats: "Sequence[str]",
    omitted: "Sequence[str]" = (),
) -> None:
    """Puts a page and charts into a folder, or under a URL, and says so."""
    from pausejax import page
    from pausejax.plotting.data import check_name
    from pausejax.results.folder import Folder
    from pausejax.study.document import SpecError

    named = options.chart
    if unknown := [name for name in named if name not in charts]:
        raise SpecError([f"--chart {unknown[0]}: is not here; there are: {', '.join(charts) or 'none'}"])
    formats = options.format or (("pdf",) if named else formats)
    folder, size = Folder(directory), (options.width, options.height)
    files = []
    for name in named or charts if formats else ():
        for format in formats:
            files.append(f"{check_name(name)}.{format}")
            folder.write(files[-1], charts[name].encode(format, *size))
    folder.write(page.NAME, text.encode())
    if options.quiet:
        return
    out = common.console()
    if files:
        out.print(f"in {directory}: {', '.join(files)}", markup=False)
    for line in omitted:
        out.print(line, markup=False)
    out.print(f"all of it on one page: {directory.rstrip('/')}/{page.NAME}", markup=False, soft_wrap=True)
