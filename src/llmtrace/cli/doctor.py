"""`doctor`: what holds on this machine, and where each setting came from."""

from __future__ import annotations

import io
import sys
from contextlib import redirect_stderr
from typing import TYPE_CHECKING

import typer

from .shared import Json, NoColor, make_console

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .checks import Finding

STYLES = {"ok": "", "note": "yellow", "bad": "bold red"}
SIGNS = {"ok": " ", "note": "!", "bad": "X"}


def doctor(as_json: Json = False, no_color: NoColor = False) -> None:
    """Say what works on this machine, and why not.

    Settings, places, agent, drops, versions, instruments. Exits 1 only where nothing could work.
    """
    with redirect_stderr(io.StringIO()):  # each warning is a finding below; said twice it would only look like two
        findings = _examine()
    if as_json:
        import msgspec

        sys.stdout.buffer.write(msgspec.json.encode(findings) + b"\n")
    else:
        _print(findings, no_color)
    if any(finding.state == "bad" and finding.section == "places" for finding in findings):
        raise typer.Exit(1)


def _examine() -> list[Finding]:
    from ..config import resolve
    from ..directory import choose
    from ..guard import guard
    from . import checks

    config = resolve()
    directory = choose(config)
    findings = [*checks.switches(config), *checks.places(config, directory)]
    if directory is not None:
        findings += [*checks.agent(directory), *checks.processes(directory)]
    findings += [*checks.instruments(config), *checks.settings(config), *checks.versions()]
    return [*(checks.Finding("warnings", "llmtrace", text, state="note") for text in guard.warnings), *findings]


def _print(findings: Sequence[Finding], no_color: bool) -> None:
    from rich.text import Text

    from ..show.clean import one_line
    from ..show.columns import hanging
    from ..show.view import View

    console = make_console(no_color)
    view = View(now_ns=0, width=console.width, wrap=console.is_terminal)
    for section in dict.fromkeys(finding.section for finding in findings):
        console.print(Text(section, "bold"))
        found = [finding for finding in findings if finding.section == section]
        rows = [
            (Text(f"{SIGNS[f.state]} {one_line(f.name)}", STYLES[f.state]), Text(one_line(f.value)).append(f"  {one_line(f.more)}" if f.more else "", "dim"))
            for f in found
        ]
        for part in hanging(rows, view):
            console.print(part, soft_wrap=not view.wrap)
