"""Links from an incident to where it can be looked at: its page, Grafana's Explore, Kibana's Discover; built from the settings, asking nobody."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Final
from urllib.parse import quote, urlencode

import msgspec

from .config import Config
from .record import Incident, Window

SERVICE: Final = "llmtrace"
"""The one label `service_name` of all that goes to Loki (DESIGN part 10)."""
DATA_VIEW: Final = "logs-llmtrace-*"
"""Title and id of the data view over what goes to Elasticsearch."""
COLUMNS: Final = ("log.level", "host.name", "message")
PANE: Final = "llm"
"""A pane's id: Grafana takes three letters or digits, not all digits (explore/hooks/useStateSync/migrators/v1.ts)."""

MS: Final = 1_000_000

Links = dict[str, str | None]
"""`page`, `grafana` and `kibana`, as far as they are there."""

Rison = str | int | bool | Sequence["Rison"] | Mapping[str, "Rison"]

_RISON_ID: Final = re.compile(r"[^-0-9 '!:(),*@$][^ '!:(),*@$]*")
"""A text that Rison takes without quotes (github.com/Nanonid/rison, `not_idchar` and `not_idstart`)."""


def links(config: Config, pages: Path, incident: Incident) -> Links:
    """What leads to an incident; `pages` is the folder of its page file."""
    found: Links = {"page": page_link(config, pages, incident.id)}
    if config.grafana_url:
        found["grafana"] = grafana_link(config.grafana_url, config.grafana_datasource, incident.trace_id, incident.window)
    if config.kibana_url:
        found["kibana"] = kibana_link(config.kibana_url, incident.trace_id, incident.window)
    return found


def page_link(config: Config, pages: Path, incident_id: str) -> str:
    """At `llmtrace serve` where LLMTRACE_PAGE_URL says how it is reached, else the file's own URL."""
    if config.page_url:
        return f"{config.page_url}/incident/{quote(incident_id, safe='')}"
    return page_file(pages, incident_id).absolute().as_uri()


def page_file(pages: Path, incident_id: str) -> Path:
    return pages / f"{incident_id}.html"


def grafana_link(base: str, datasource: str, trace_id: str, window: Window) -> str:
    """Explore on a Loki data source, in the form that Grafana 10 and newer documents for other tools (Explore, "Generate Explore URLs")."""
    query = {
        "refId": "A",
        "datasource": {"type": "loki", "uid": datasource},
        "editorMode": "code",
        "expr": f"{{service_name={_quoted(SERVICE)}}} | trace_id={_quoted(trace_id)}",
        "queryType": "range",
    }
    start_ms, end_ms = milliseconds(window)
    panes = {PANE: {"datasource": datasource, "queries": [query], "range": {"from": str(start_ms), "to": str(end_ms)}}}
    return f"{base}/explore?{urlencode({'schemaVersion': 1, 'panes': msgspec.json.encode(panes)}, quote_via=quote, safe='')}"


def kibana_link(base: str, trace_id: str, window: Window) -> str:
    """Discover on the data view `logs-llmtrace-*`.

    Kibana 8.15 and newer read the data view from `dataSource`, older ones from `index`, and each passes over the other's. All
    is percent-encoded: what recognises links in a chat ends them at a bracket or a quote.
    """
    start_ms, end_ms = milliseconds(window)
    where: Rison = {"time": {"from": _iso(start_ms), "to": _iso(end_ms)}}
    what: Rison = {
        "columns": COLUMNS,
        "dataSource": {"dataViewId": DATA_VIEW, "type": "dataView"},
        "index": DATA_VIEW,
        "query": {"language": "kuery", "query": f"trace.id : {_quoted(trace_id)}"},
        "sort": [["@timestamp", "asc"]],
    }
    return f"{base}/app/discover#/?{urlencode({'_g': rison(where), '_a': rison(what)}, quote_via=quote, safe='')}"


def common_links(several: Sequence[Mapping[str, str | None]]) -> Links:
    """Of incidents that are one, the first one's before the others'; a page that everybody reaches before a file of some node."""
    found: Links = {name: link for links in reversed(several) for name, link in links.items() if link}
    pages = [link for links in several if (link := links.get("page"))]
    if served := next((link for link in pages if not _is_file(link)), None):
        found["page"] = served
    return found


def context_url(incident: Incident) -> str | None:
    """The one link of an alert: the first configured of page, Grafana and Kibana, else the page's file.

    A page's carries trace id and window in ms, as the others do by themselves: whoever has not that incident may have that time.
    """
    page = incident.links.get("page")
    elsewhere = incident.links.get("grafana") or incident.links.get("kibana")
    if page is None or (elsewhere and _is_file(page)):
        return elsewhere
    start_ms, end_ms = milliseconds(incident.window)
    return f"{page}?{urlencode({'trace': incident.trace_id, 'from': start_ms, 'to': end_ms})}"


def milliseconds(window: Window) -> tuple[int, int]:
    """Start and end since 1970, so that nothing of the window is outside."""
    return window.start_ns // MS, -(-window.end_ns // MS)


def rison(value: Rison) -> str:
    """The value in Rison, Kibana's notation for what stands in a URL; not yet percent-encoded."""
    if isinstance(value, bool):
        return "!t" if value else "!f"
    if isinstance(value, int):
        return str(value)
    if isinstance(value, str):
        return value if _RISON_ID.fullmatch(value) else "'" + value.replace("!", "!!").replace("'", "!'") + "'"
    if isinstance(value, Mapping):
        return f"({','.join(f'{rison(name)}:{rison(value[name])}' for name in sorted(value))})"
    return f"!({','.join(map(rison, value))})"


def _quoted(text: str) -> str:
    """In double quotes, as LogQL and KQL take it."""
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _iso(time_ms: int) -> str:
    return datetime.fromtimestamp(time_ms // 1000, UTC).strftime("%Y-%m-%dT%H:%M:%S.") + f"{time_ms % 1000:03d}Z"


def _is_file(link: str) -> bool:
    return link.startswith("file:")
