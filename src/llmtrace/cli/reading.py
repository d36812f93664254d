"""`runs`, `incidents` and `context`: what happened, from the journals."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated

import typer

from .files import STDOUT, write_out
from .shared import Dirs, Json, NoColor, SourceKind, make_console, open_listing, open_reading, refuse, refusing, write_json

if TYPE_CHECKING:
    from ..record import Incident, Kind
    from ..sources.base import Source
    from ..sources.context import Context

LAST = "last"
"""The key that means: the newest incident, else the newest run."""


@refusing
def runs(as_json: Json = False, dirs: Dirs = None, source: SourceKind = "journal", no_color: NoColor = False) -> None:
    """List what ran.

    A row a trace, attempt and run.
    """
    from ..sources.runs import runs as find_runs

    opened = open_listing(dirs, source)
    found = find_runs(opened) if opened else []
    if as_json:
        from ..show.rows import run_row

        write_json([run_row(run) for run in found])
    else:
        from ..show.tables import runs_table

        make_console(no_color).print(runs_table(found, time.time_ns()))


@refusing
def incidents(
    trace: Annotated[str | None, typer.Option("--trace", metavar="T", help="Only those of this trace.")] = None,
    as_json: Json = False,
    dirs: Dirs = None,
    source: SourceKind = "journal",
    no_color: NoColor = False,
) -> None:
    """List what broke, oldest first."""
    opened = open_listing(dirs, source)
    found = sorted(opened.incidents(_known_trace(opened, trace)), key=lambda incident: incident.onset_ns) if opened else []
    if as_json:
        from ..show.rows import incident_row

        write_json([incident_row(incident) for incident in found])
    else:
        from ..show.tables import incidents_table

        make_console(no_color).print(incidents_table(found, time.time_ns()))


@refusing
def context(
    key: Annotated[str, typer.Argument(metavar="INCIDENT|TRACE", help=f"An incident's or a trace's id, or the start of one; `{LAST}` is the newest.")],
    at: Annotated[
        str | None, typer.Option("--at", metavar="TIME", help="The window around this moment: 2026-11-30T03:14:07, 03:14:07, -5m, or epoch s/ms/ns.")
    ] = None,
    before: Annotated[str, typer.Option("--before", metavar="TIME", help="How long before the onset.")] = "30s",
    after: Annotated[str, typer.Option("--after", metavar="TIME", help="How long after it.")] = "5s",
    rank: Annotated[int | None, typer.Option("--rank", metavar="N", min=0, help="Only this rank's records.")] = None,
    kind: Annotated[str | None, typer.Option("--kind", metavar="KINDS", help="Only these, by comma: log, span, sample, event.")] = None,
    whole: Annotated[bool, typer.Option("--all", help="Every line of the window, uncut.")] = False,
    html: Annotated[str | None, typer.Option("--html", metavar="FILE", help="Write it as a page to FILE; `-` is stdout.")] = None,
    lang: Annotated[str | None, typer.Option("--lang", metavar="en|zh", help="The page's language; else the browser's.")] = None,
    markdown: Annotated[
        str | None, typer.Option("--markdown", metavar="FILE", help="Write a report for a ticket or an assistant to FILE; `-` is stdout.")
    ] = None,
    perfetto: Annotated[str | None, typer.Option("--perfetto", metavar="FILE", help="Write a trace for Perfetto to FILE; `-` is stdout.")] = None,
    as_json: Json = False,
    dirs: Dirs = None,
    source: SourceKind = "journal",
    no_color: NoColor = False,
) -> None:
    """Show what happened around a fault, or now.

    The seconds before it began, from every rank, with the culprit named; of a job that runs, its last 35 seconds.
    """
    kinds = _kinds(kind)
    moments = (_moment(at), _length("--before", before), _length("--after", after))
    files = {option: name for option, name in (("--html", html), ("--markdown", markdown), ("--perfetto", perfetto)) if name is not None}
    _check_files(files, lang, {"--json": as_json, "--rank": rank is not None, "--kind": kind is not None, "--all": whole})
    opened = open_reading(dirs, source)
    if as_json:
        _write_records(_find(opened, key, moments, rank, kinds))
        return
    from ..config import resolve
    from ..show.advice import reading_options

    options = reading_options(dirs or (), resolve())
    if files:
        _write_files(_find(opened, key, moments), files, lang or "", options)
    else:  # the lanes and the verdict need everybody's records; what was asked for chooses among the lines
        print_context(_find(opened, key, moments), no_color, options=options, whole=whole, kinds=kinds, rank=rank)


def print_context(
    found: Context, no_color: bool, *, options: str = "", whole: bool = False, kinds: frozenset[Kind] | None = None, rank: int | None = None
) -> None:
    """The terminal view on stdout; `options` goes into the commands that it proposes."""
    from ..show.terminal import View, show

    console = make_console(no_color)
    view = View(
        now_ns=time.time_ns(),
        width=console.width,
        ascii_only=console.options.ascii_only,
        wrap=console.is_terminal,
        options=options,
        whole=whole,
        kinds=kinds,
        rank=rank,
    )
    for part in show(found, view):
        console.print(part, soft_wrap=not view.wrap)


def _check_files(files: Mapping[str, str], lang: str | None, others: Mapping[str, bool]) -> None:
    """Refuse what cannot be had together."""
    for other in (name for name, given in others.items() if given and files):
        refuse(f"{next(iter(files))} and {other} exclude each other: a file holds the whole window", 2)
    if list(files.values()).count(STDOUT) > 1:
        refuse(f"only one of {', '.join(files)} can go to stdout", 2)
    if lang is None:
        return
    from ..show.page.texts import LANGUAGES

    if lang not in LANGUAGES:
        refuse(f"--lang {lang!r}; allowed: {', '.join(LANGUAGES)}", 2)
    if "--html" not in files:
        refuse("--lang is for --html", 2)


def _write_files(found: Context, files: Mapping[str, str], lang: str, options: str) -> None:
    from ..show.clean import one_line
    from ..show.times import size

    for option, name in files.items():
        data = file_data(option, found, lang, options)
        try:
            write_out(name, data)
        except (OSError, ValueError) as error:  # a ValueError for a name with NUL in it
            refuse(f"{option} {name}: cannot be written: {getattr(error, 'strerror', None) or error}")
        if name != STDOUT and STDOUT not in files.values():
            print(f"{one_line(name)}: {size(len(data))}")


def file_data(option: str, found: Context, lang: str, options: str) -> bytes:
    """What the file of that option holds; `options` goes into the commands that it proposes."""
    now_ns = time.time_ns()
    if option == "--perfetto":
        from ..show.perfetto import trace_json

        return trace_json(found)
    if option == "--markdown":
        from ..show.markdown import report

        return report(found, options=options, now_ns=now_ns).encode(errors="replace")
    from ..show.page.content import content
    from ..show.page.document import document

    return document(content(found, language=lang, options=options, now_ns=now_ns)).encode(errors="replace")


def _find(source: Source, key: str, moments: tuple[int | None, int, int], rank: int | None = None, kinds: frozenset[Kind] | None = None) -> Context:
    from ..sources.context import context as find_context

    at_ns, before_ns, after_ns = moments
    if key == LAST:
        key = newest(source)
    try:
        return find_context(source, key, at_ns=at_ns, before_ns=before_ns, after_ns=after_ns, rank=rank, kinds=kinds)
    except LookupError as error:
        refuse(str(error.args[0]) if error.args else str(error))


def newest(source: Source) -> str:
    incidents: list[Incident] = source.incidents()
    if incidents:
        return max(incidents, key=lambda incident: incident.onset_ns).id
    processes = [process for process in source.processes() if process.identity.trace_id]
    if not processes:
        refuse("there is nothing yet: no run and no incident")
    return max(processes, key=lambda process: process.started_ns).identity.trace_id


def _known_trace(source: Source, key: str | None) -> str | None:
    """The one trace that `key` names or begins; refuses what is no trace's."""
    if key is None:
        return None
    there = sorted({process.identity.trace_id for process in source.processes()} | {incident.trace_id for incident in source.incidents()})
    found = [trace for trace in there if trace and trace.startswith(key.lower())]
    if len(found) != 1:
        what = f"{len(found)} traces begin with" if found else "there is no trace"
        refuse(f"{what} {key!r}; there {'is' if len(there) == 1 else 'are'} {', '.join(there[-8:]) or 'none'}")
    return found[0]


def _write_records(found: Context) -> None:
    import sys

    from ..show.rows import encode, record_row

    sys.stdout.buffer.writelines(encode(record_row(record)) + b"\n" for record in found.records)


def _kinds(text: str | None) -> frozenset[Kind] | None:
    if text is None:
        return None
    from typing import get_args

    from ..config import words
    from ..record import Kind

    given = frozenset(words(text))
    if not given or given - set(get_args(Kind)):
        refuse(f"--kind {text!r}; allowed: {', '.join(get_args(Kind))}", 2)
    return given  # type: ignore[return-value]


def _length(option: str, text: str) -> int:
    from .times import length_ns

    try:
        return length_ns(text)
    except ValueError as error:
        refuse(f"{option} {text!r}: {error}", 2)


def _moment(text: str | None) -> int | None:
    if text is None:
        return None
    from .times import moment_ns

    try:
        return moment_ns(text, time.time_ns())
    except ValueError as error:
        refuse(f"--at {text!r}: {error}", 2)
