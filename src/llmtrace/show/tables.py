"""`llmtrace runs` and `llmtrace incidents` for people."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from ..record import Incident, Run
from .clean import one_line
from .times import ago, day_and_clock, length

SHORT = 8
"""So much of a trace id is enough for every command that takes one."""
STATE_STYLES = {"running": "green", "finished": "", "failed": "bold red", "lost": "bold yellow"}


def runs_table(runs: Sequence[Run], now_ns: int) -> RenderableType:
    """A row a run, newest last, as in a shell's history."""
    if not runs:
        return Text("No runs yet. Start one: LLMTRACE=1 python train.py, or llmtrace run python train.py")
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("started", "state", "took", "ranks", "step", "job", "nodes", "trace"):
        right, keep = name in ("took", "ranks", "step"), name not in ("job", "nodes")
        table.add_column(
            name, justify="right" if right else "left", no_wrap=keep, overflow="fold", min_width=10 if name == "job" else SHORT if name == "trace" else None
        )
    several = len({(run.trace_id, run.attempt) for run in runs}) < len(runs)
    for run in sorted(runs, key=lambda run: run.started_ns):
        took = length((run.ended_ns or now_ns) - run.started_ns)
        name = one_line(run.job) + (f" (run {run.run})" if several else "")
        step = "" if run.last_step is None else f"{run.last_step:,}"
        cells = (day_and_clock(run.started_ns), Text(run.state, STATE_STYLES[run.state]), took, str(run.ranks), step, Text(name), _few(run.nodes))
        table.add_row(*cells, run.trace_id[:SHORT])
    return table


def incidents_table(incidents: Sequence[Incident], now_ns: int) -> RenderableType:
    """A row an incident; the last column is what to give to `llmtrace context`."""
    if not incidents:
        return Text("No incidents.")
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("began", no_wrap=True)
    table.add_column("incident", no_wrap=True, style="bold")
    table.add_column("category", no_wrap=True)
    table.add_column("what happened", overflow="fold")
    for incident in incidents:
        table.add_row(f"{day_and_clock(incident.onset_ns)}\n{ago(incident.onset_ns, now_ns)}", incident.id, incident.category, Text(one_line(incident.summary)))
    return table


def _few(nodes: Sequence[str]) -> Text:
    return Text(", ".join(map(one_line, nodes)) if len(nodes) <= 2 else f"{len(nodes)} nodes")
