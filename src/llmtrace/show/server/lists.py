"""The front page (runs and incidents, newest first) and the page that says no."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Final

import msgspec
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from ...record import Incident, Run
from ..clean import cut, one_line
from ..tables import SHORT
from ..times import SECOND_NS, date, day_and_clock, length
from .answers import JSON, Answer, RefusedError
from .security import policy
from .words import words

LISTED: Final = 200
LONGEST: Final = 300
"""Characters of one cell: a summary may quote an exception of any length."""
PAGE_STYLE: Final = Path(__file__).parents[1] / "page" / "style.css"
"""Whose colours and fonts these pages share."""
TEMPLATES: Final = Path(__file__).parent / "templates"


class IncidentLine(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    began: str
    ago: str
    category: str
    summary: str
    trace: str


class RunLine(msgspec.Struct, frozen=True, kw_only=True):
    trace_id: str
    trace: str
    started: str
    ago: str
    state: str
    took: str
    ranks: int
    step: str
    job: str
    run: int
    nodes: str


def front_page(incidents: Sequence[Incident], runs: Sequence[Run], search: str, language: str, now_ns: int) -> str:
    """The lists as HTML, cut to those in which every word of `search` occurs."""
    wanted = search.casefold().split()
    found = [i for i in sorted(incidents, key=lambda i: -i.onset_ns) if _has(wanted, _said_of_incident(i))]
    ran = [run for run in sorted(runs, key=lambda run: -run.started_ns) if _has(wanted, _said_of_run(run))]
    say = words(language)
    return _render(
        "lists.html",
        language,
        search=search,
        incidents=[_incident_line(incident, now_ns, say) for incident in found[:LISTED]],
        runs=[_run_line(run, now_ns, say) for run in ran[:LISTED]],
        more_incidents=max(0, len(found) - LISTED),
        more_runs=max(0, len(ran) - LISTED),
        zone=date(now_ns).partition(" ")[2],
    )


def refusal_page(refusal: RefusedError, language: str, way_home: str | None, as_json: bool) -> Answer:
    """The refusal as a page with the way back; as JSON where data were asked for."""
    sentence = one_line(refusal.sentence)
    sentence = sentence[:1].upper() + sentence[1:]
    if as_json:
        return Answer(status=refusal.status, kind=JSON, body=msgspec.json.encode({"error": sentence}), headers=refusal.headers)
    html = _render("refusal.html", language, status=refusal.status, sentence=sentence, way_home=way_home)
    return page_answer(html, refusal.status, refusal.headers)


def page_answer(html: str, status: int = 200, headers: Mapping[str, str] | None = None) -> Answer:
    return Answer(status=status, body=html.encode(errors="replace"), headers={**(headers or {}), "Content-Security-Policy": policy(html)})


def _incident_line(incident: Incident, now_ns: int, say: Mapping[str, str]) -> IncidentLine:
    return IncidentLine(
        id=one_line(incident.id),
        began=day_and_clock(incident.onset_ns),
        ago=_ago(incident.onset_ns, now_ns, say),
        category=one_line(incident.category),
        summary=cut(one_line(incident.summary), LONGEST),
        trace=one_line(incident.trace_id)[:SHORT],
    )


def _run_line(run: Run, now_ns: int, say: Mapping[str, str]) -> RunLine:
    return RunLine(
        trace_id=one_line(run.trace_id),
        trace=one_line(run.trace_id)[:SHORT],
        started=day_and_clock(run.started_ns),
        ago=_ago(run.started_ns, now_ns, say),
        state=run.state,
        took=length((run.ended_ns or now_ns) - run.started_ns),
        ranks=run.ranks,
        step="" if run.last_step is None else f"{run.last_step:,}",
        job=cut(one_line(run.job), LONGEST),
        run=run.run,
        nodes=cut(", ".join(map(one_line, run.nodes)), LONGEST),
    )


def _ago(time_ns: int, now_ns: int, say: Mapping[str, str]) -> str:
    return say["just_now"] if now_ns - time_ns < SECOND_NS else say["ago"].format(length(now_ns - time_ns))


def _said_of_incident(incident: Incident) -> Iterable[object]:
    who = incident.culprit
    return incident.id, *incident.merged, incident.trace_id, incident.category, incident.role, incident.summary, f"rank {who.rank}", who.node, who.gpu


def _said_of_run(run: Run) -> Iterable[object]:
    return run.trace_id, run.job, run.state, *run.nodes


def _has(wanted: Sequence[str], said: Iterable[object]) -> bool:
    text = "\n".join(str(part) for part in said if part is not None).casefold()
    return all(word in text for word in wanted)


def _render(name: str, language: str, **values: object) -> str:
    template = _environment().get_template(name)
    return template.render(say=words(language), language="zh-CN" if language == "zh" else language, style=Markup(_style()), **values)


@lru_cache(maxsize=1)
def _environment() -> Environment:
    return Environment(loader=FileSystemLoader(TEMPLATES), autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)


@lru_cache(maxsize=1)
def _style() -> str:
    """The page's variables, dark ones where the system is dark (these pages have no script that would ask), and what lists need."""
    page = PAGE_STYLE.read_text(encoding="utf-8")
    light, dark = variables(page, ":root"), variables(page, ":root.dark")
    own = (TEMPLATES / "lists.css").read_text(encoding="utf-8")
    return f":root {{{light}}}\n@media (prefers-color-scheme: dark) {{ :root {{{dark}}} }}\n{own}"


def variables(style: str, selector: str) -> str:
    """What the first rule of exactly that selector declares; raises LookupError where there is none."""
    match = re.search(rf"^{re.escape(selector)} \{{(.*?)\}}", style, re.MULTILINE | re.DOTALL)
    if match is None:
        raise LookupError(f"the page's style has no rule {selector}")
    return match[1]
