"""The rings of processes that run now, and who these are: for `off` and `doctor`."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from ..clock import process_start_ticks
from ..config import resolve
from ..directory import choose, existing
from ..frames import filled_epochs, merge_descriptions
from ..record import Identity
from ..ring import RingError, RingReader, find_rings


def folders(dirs: Sequence[str]) -> list[tuple[Path, Path]]:
    """Where rings may lie, each with its registry: of the directories named, else of all that readers would read, else of LLMTRACE_DIR."""
    config = resolve()
    paths = list(dirs) or [str(path) for path in existing([], config)] or [config.dir]
    chosen = [choose(resolve({"dir": path} if path else None)) for path in paths if not path or os.path.isdir(path)]
    return [(found.rings, found.registry) for found in chosen if found is not None]


def running(places: Sequence[tuple[Path, Path]]) -> Iterator[tuple[RingReader, Identity]]:
    """The rings of processes that live and have not ended; the caller closes them."""
    for folder, registry in places:
        for path in find_rings(folder, registry):
            try:
                reader = RingReader(path)
            except RingError:  # it was removed, or is of another version
                continue
            header = reader.header()
            if header.ended == "running" and process_start_ticks(header.pid) == header.start_ticks:
                yield reader, identity_of(reader)
            else:
                reader.close()


def identity_of(reader: RingReader) -> Identity:
    """Who the process is by the last word of its ring; without a word, nobody."""
    try:
        epochs = filled_epochs(merge_descriptions(reader.descriptions()).epochs, {})
    except (RingError, msgspec.MsgspecError):
        return Identity()
    return epochs[-1].identity if epochs else Identity()
