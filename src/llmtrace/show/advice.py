"""What to look at next: commands that can be copied, the most useful first."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from shlex import quote
from typing import Final

from rich.cells import cell_len
from rich.text import Text

from ..config import Config
from ..directory import existing
from ..names import FAILURE_LINE
from .clean import one_line
from .columns import GAP, hung_text
from .hints import manner, next_words
from .page.model import Phrase
from .phrases import english, say
from .story import Standing, Story, who
from .strips import step_time_ns
from .times import SECOND_NS
from .view import View

_WORD: Final = re.compile(r"(?:'[^']*'|[^ '])+")
"""A shell's word: between quotes a line must not be broken."""
SHORT: Final = 12
"""So much of a trace id is enough for `llmtrace context`."""


def reading_options(dirs: Sequence[str], config: Config) -> str:
    """What a command needs to find the same journals from any shell and folder: `--dir DIR` unless the default lookup does."""
    found = [Path(name) for name in dirs] or (existing((), config) if config.dir else [])
    return " ".join(f"--dir {quote(os.path.abspath(path))}" for path in found)


def advice(story: Story, view: View) -> Iterator[Text]:
    """First what this fault asks for, then the commands."""
    width = view.width if view.wrap else None
    if text := next_words(story):
        yield hung_text(Text(english(text)), width, 0)
    found = [(shell, english(why)) for shell, why in commands(story, view.options)]
    indent = max(cell_len(why) for _, why in found) + len(GAP)
    for shell, why in found:
        line = Text(why + " " * (indent - cell_len(why)), "dim")
        for number, part in enumerate(_shell_lines(shell, width and width - indent)):
            line.append("\n" + " " * indent if number else "").append(part, "bold not dim")
        yield line


def _shell_lines(command: str, room: int | None) -> list[str]:
    """A command as lines that a shell takes for one; a word that is longer than the room stays whole."""
    if room is None or cell_len(command) <= room:
        return [command]
    lines = [""]
    for word in _WORD.findall(command):
        longer = f"{lines[-1]} {word}" if lines[-1] else word
        if lines[-1] and cell_len(longer) + 2 > room:
            lines[-1] += " \\"
            lines.append(f"  {word}")
        else:
            lines[-1] = longer
    return lines


def commands(story: Story, options: str) -> Iterator[tuple[str, Phrase]]:
    """Commands, and what each is for."""
    incident, base = story.incident, command(story, options)
    if story.culprit is not None:
        yield from _of_culprit(story, story.culprit)
        yield f"{base} --rank {story.culprit.rank} --all | less", say("why.culprit", who=who([story.culprit.rank]))
    if incident is not None and (step := step_time_ns(story.standings)):
        seconds = max(1, round(20 * step / SECOND_NS))
        if seconds < 15:
            yield f"{base} --before {seconds}s --after 1s", say("why.last_steps")
    yield f"{base} --all | less", say("why.every_line")
    yield f"{base} --kind span,sample | less", say("why.numbers")
    if incident is None and any(standing.process.ending == "running" for standing in story.standings):
        yield f"watch -n 5 {base}", say("why.follow")
    yield f"{base} --json", say("why.program")


def command(story: Story, options: str) -> str:
    """What shows this window in a terminal."""
    key = story.incident.id if story.incident else story.context.trace_id[:SHORT]
    return " ".join(part for part in ("llmtrace context", key, options) if part)


def _of_culprit(story: Story, culprit: Standing) -> Iterator[tuple[str, Phrase]]:
    """The line that failed; for an end without one, where to ask."""
    if culprit.trouble is not None and (line := culprit.trouble.attributes.get(FAILURE_LINE)):
        path, number = _file_and_line(str(line))
        yield f"${{EDITOR:-vi}} {f'+{number} ' if number else ''}{quote(path)}", say("why.line")
        return
    how, code, category = manner(culprit), culprit.process.exit_code, story.incident.category if story.incident else ""
    if how == "left" and category in ("process_death", "program_error", "unknown"):
        yield f"grep -rnE --include='*.py' 'exit\\({code}\\)|SystemExit\\({code}\\)' {quote(_program(story))}", say("why.exit")
    if how in ("killed", "unseen") and category in ("process_death", "host_oom", "unknown"):
        node = one_line(culprit.process.identity.node) if story.nodes > 1 else ""
        yield "dmesg -T | grep -iE 'killed process|oom' | tail", say("why.kernel_of", node=node) if node else say("why.kernel")


def _file_and_line(line: str) -> tuple[str, str]:
    path, _, rest = one_line(line).partition(":")
    number = rest.split(" ")[0]
    return path, number if number.isdigit() else ""


def _program(story: Story) -> str:
    """The folder of the user's code, as far as some rank's failure told a line of it."""
    lines = [standing.trouble.attributes.get(FAILURE_LINE) for standing in story.standings if standing.trouble is not None]
    paths = [_file_and_line(str(line))[0] for line in lines if line]
    return next((os.path.dirname(path) for path in paths if path.startswith("/")), ".")
