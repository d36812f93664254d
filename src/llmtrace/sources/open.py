"""From what a person names (directories, a kind of store) to a source."""

from __future__ import annotations

from collections.abc import Sequence

from ..config import resolve
from ..directory import existing
from .base import Source
from .journal import JournalSource
from .merged import Merged


def open_source(dirs: Sequence[str] = (), kind: str = "journal") -> Source:
    """The journals in `dirs` read as one; without any, that of LLMTRACE_DIR, else all of this user on this machine.

    Raises LookupError where there is no journal, ValueError for a kind that is not there, JournalError for one that cannot be read.
    """
    if kind != "journal":
        raise ValueError(f"--source {kind}: allowed: journal")
    paths = existing(list(dirs), resolve())
    if not paths:
        raise LookupError(f"no journal in {', '.join(dirs) or 'LLMTRACE_DIR or /var/tmp/llmtrace-*'}: nothing has been traced there yet")
    sources: list[Source] = [JournalSource(path) for path in paths]
    return sources[0] if len(sources) == 1 else Merged(sources)
