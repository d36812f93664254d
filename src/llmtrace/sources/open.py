"""From what a person names (directories, a kind of store) to a source."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ..config import resolve
from ..directory import existing
from ..guard import guard
from ..journal import JournalError
from .base import Source
from .journal import JournalSource
from .merged import Merged

KINDS = ("journal",)


def open_source(dirs: Sequence[str] = (), kind: str = "journal") -> Source:
    """The journals in `dirs` read as one; without any, that of LLMTRACE_DIR, else all of this user on this machine.

    One of several that is missing or cannot be read is named on stderr and left out. Raises LookupError where there is none,
    ValueError for a kind of source that is not there, JournalError where the only one cannot be read.
    """
    if kind not in KINDS:
        raise ValueError(f"source {kind!r}: allowed: {', '.join(KINDS)}")
    paths = existing(list(dirs), resolve())
    if not paths:
        raise LookupError(f"no journal in {', '.join(dirs) or 'LLMTRACE_DIR or /var/tmp/llmtrace-*'}: nothing has been traced there yet")
    for missing in {Path(path) for path in dirs} - set(paths):
        guard.warn(f"there is no journal in {missing}: it is left out")
    sources: list[Source] = [_only(paths[0])] if len(paths) == 1 else _readable(paths)
    return sources[0] if len(sources) == 1 else Merged(sources)


def _only(path: Path) -> Source:
    try:
        return JournalSource(path)
    except JournalError as error:
        if error.trouble != "empty":
            raise
        raise LookupError(str(error)) from None  # an agent is making it just now


def _readable(paths: Sequence[Path]) -> list[Source]:
    sources: list[Source] = []
    for path in paths:
        try:
            sources.append(JournalSource(path))
        except JournalError as error:
            guard.warn(f"the journal in {path} cannot be read and is left out: {error}")
    if not sources:
        raise LookupError(f"none of the {len(paths)} journals can be read")
    return sources
