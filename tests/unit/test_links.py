"""Links from an incident, taken apart again by what their readers use: URLs, JSON, Rison."""

from __future__ import annotations

import json
import os
import string
from datetime import datetime
from pathlib import Path
from urllib.parse import parse_qs, unquote, unquote_to_bytes, urlsplit

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmtrace.config import Config, resolve
from llmtrace.incidents import incident_attributes, incident_of
from llmtrace.links import Rison, common_links, context_url, grafana_link, kibana_link, links, page_file, rison
from llmtrace.names import INCIDENT
from llmtrace.record import Record, Window
from llmtrace.sources.journal import JournalSource
from llmtrace.sources.merged import Merged
from tests.support.cases import TRACE, ns, who
from tests.support.journals import write
from tests.support.small_job import PROCESSES, RECORDS, incident

PAGES = Path("/data/llmtrace/pages")
WINDOW = Window(1_764_000_070_000_000_001, 1_764_000_105_100_000_001)
GRAFANA, KIBANA, SERVED = "http://grafana.example:3000", "https://kibana.example/s/ml", "https://ops.example/llmtrace"


def settings(**given: str) -> Config:
    return resolve(given, {}, "")


def parse_rison(text: str) -> object:
    """Rison's grammar, read by the book (github.com/Nanonid/rison), apart from what builds it here."""
    value, rest = parse_value(text)
    assert rest == ""
    return value


def parse_value(text: str) -> tuple[object, str]:
    if text.startswith("!("):
        return parse_many(text[2:], lambda rest: parse_value(rest))
    if text.startswith("("):
        pairs, rest = parse_many(text[1:], parse_pair)
        return dict(pairs), rest  # type: ignore[arg-type]
    if text.startswith("!"):
        return {"t": True, "f": False}[text[1]], text[2:]
    if text.startswith("'"):
        return parse_string(text[1:])
    end = next((i for i, character in enumerate(text) if character in " '!:(),*@$"), len(text))
    word, rest = text[:end], text[end:]
    assert word
    return (int(word) if word[0] in "-0123456789" else word), rest


def parse_pair(text: str) -> tuple[object, str]:
    name, rest = parse_value(text)
    assert rest[0] == ":"
    value, rest = parse_value(rest[1:])
    return (name, value), rest


def parse_many(text: str, parse_one) -> tuple[list[object], str]:  # type: ignore[no-untyped-def]
    found: list[object] = []
    while not text.startswith(")"):
        if found:
            assert text[0] == ","
            text = text[1:]
        value, text = parse_one(text)
        found.append(value)
    return found, text[1:]


def parse_string(text: str) -> tuple[str, str]:
    found = ""
    while text[0] != "'":
        if text[0] == "!":
            assert text[1] in "!'"
            text = text[1:]
        found, text = found + text[0], text[1:]
    return found, text[1:]


VALUES = st.recursive(st.text() | st.integers() | st.booleans(), lambda inner: st.lists(inner) | st.dictionaries(st.text(min_size=1), inner), max_leaves=10)


@given(VALUES)
def test_what_is_written_in_rison_is_read_back(value: Rison) -> None:
    assert parse_rison(rison(value)) == value


@pytest.mark.parametrize(
    ("value", "text"),
    [("a-b.c", "a-b.c"), ("@timestamp", "'@timestamp'"), ("1a", "'1a'"), ("it's!", "'it!'s!!'"), ("", "''"), (True, "!t"), ([1, "x"], "!(1,x)")],
)
def test_rison_by_example(value: Rison, text: str) -> None:
    assert rison(value) == text


@given(st.text(), st.text(alphabet=string.printable, min_size=1))
def test_a_grafana_link_holds_one_loki_query_for_the_trace_and_its_window(trace: str, datasource: str) -> None:
    url = urlsplit(grafana_link(GRAFANA, datasource, trace, WINDOW))
    query = parse_qs(url.query, strict_parsing=True)
    assert (url.scheme, url.netloc, url.path, url.fragment) == ("http", "grafana.example:3000", "/explore", "")
    assert query["schemaVersion"] == ["1"]
    ((name, pane),) = json.loads(query["panes"][0]).items()
    assert len(name) == 3 and not name.isdigit() and set(name) <= set(string.ascii_lowercase + string.digits)
    assert pane["datasource"] == datasource
    assert pane["range"] == {"from": "1764000070000", "to": "1764000105101"}
    (asked,) = pane["queries"]
    assert asked["refId"] == "A" and asked["datasource"] == {"type": "loki", "uid": datasource}
    selector, _, value = asked["expr"].partition(" | trace_id=")
    assert selector == '{service_name="llmtrace"}'
    assert value.replace("\\\\", "").replace('\\"', "").count('"') == 2  # quoted, and nothing ends the quotation
    assert value[1:-1].replace('\\"', '"').replace("\\\\", "\\") == trace


@given(st.text())
def test_a_kibana_link_holds_data_view_query_and_window(trace: str) -> None:
    link = kibana_link(KIBANA, trace, WINDOW)
    url = urlsplit(link)
    assert (url.netloc, url.path, url.query) == ("kibana.example", "/s/ml/app/discover", "")
    route, _, query = url.fragment.partition("?")
    assert route == "/"
    state = {name: parse_rison(values[0]) for name, values in parse_qs(query, strict_parsing=True).items()}
    assert state["_g"] == {"time": {"from": "2025-11-24T16:01:10.000Z", "to": "2025-11-24T16:01:45.101Z"}}
    assert datetime.fromisoformat("2025-11-24T16:01:10.000Z").timestamp() * 1000 == WINDOW.start_ns // 10**6
    app = state["_a"]
    assert isinstance(app, dict)
    assert app["dataSource"] == {"type": "dataView", "dataViewId": "logs-llmtrace-*"} and app["index"] == "logs-llmtrace-*"
    assert app["sort"] == [["@timestamp", "asc"]]
    language, text = app["query"]["language"], app["query"]["query"]
    assert language == "kuery"
    assert text.startswith('trace.id : "') and text[12:-1].replace('\\"', '"').replace("\\\\", "\\") == trace
    assert not set(link) & set("'()!*\" <>")  # what ends a link in a chat


@pytest.mark.parametrize("folder", ["/data/a b/#1?x=ü/100%", "/tmp/plain", "/tmp/\udcff\udc80 latin", "/tmp/new\nline"])
def test_without_a_server_the_page_is_a_file_also_in_odd_folders(folder: str) -> None:
    pages = Path(folder) / "pages"
    link = links(settings(), pages, incident())["page"]
    assert link is not None and link.startswith("file:///")
    assert set(link) <= set(string.ascii_letters + string.digits + "%/:.-_~")
    assert unquote_to_bytes(urlsplit(link).path) == os.fsencode(page_file(pages, incident().id))


def test_each_link_is_there_when_its_server_is_configured() -> None:
    assert links(settings(), PAGES, incident()).keys() == {"page"}
    found = links(settings(page_url=SERVED + "/", grafana_url=GRAFANA, kibana_url=KIBANA, grafana_datasource="Loki prod"), PAGES, incident())
    assert found["page"] == f"{SERVED}/incident/{incident().id}"
    assert "Loki%20prod" in (found["grafana"] or "") and (found["kibana"] or "").startswith(KIBANA)


@pytest.mark.parametrize(
    ("given", "begins"),
    [
        ({}, "file:///data/llmtrace/pages/"),
        ({"kibana_url": KIBANA}, KIBANA),
        ({"kibana_url": KIBANA, "grafana_url": GRAFANA}, GRAFANA),
        ({"kibana_url": KIBANA, "grafana_url": GRAFANA, "page_url": SERVED}, SERVED),
    ],
)
def test_an_alert_links_to_the_first_that_is_configured_and_carries_trace_and_window(given: dict[str, str], begins: str) -> None:
    told = incident()
    url = context_url(msgspec.structs.replace(told, links=links(settings(**given), PAGES, told)))
    assert url is not None and url.startswith(begins)
    assert TRACE in unquote(url)
    if begins != KIBANA:
        assert str(told.window.start_ns // 10**6) in unquote(url)
    assert context_url(told) is None


def test_links_survive_the_incident_s_record() -> None:
    told = msgspec.structs.replace(incident(), links=links(settings(grafana_url=GRAFANA, kibana_url=KIBANA), PAGES, incident()))
    record = Record(id="x", time_ns=ns(100), kind="event", name=INCIDENT, identity=who(0), body=told.summary, attributes=incident_attributes(told))
    assert incident_of(record) == told
    assert incident_of(msgspec.structs.replace(record, attributes=incident_attributes(incident()))).links == {}


def test_of_several_nodes_a_page_that_is_served_comes_before_one_that_lies_on_a_node() -> None:
    lying, served, elsewhere = "file:///a/1.html", "https://ops.example/incident/2", "file:///b/3.html"
    assert common_links([{"page": lying}, {"page": elsewhere, "grafana": "g"}]) == {"page": lying, "grafana": "g"}
    assert common_links([{"page": lying, "grafana": "first"}, {"page": served, "grafana": "second"}]) == {"page": served, "grafana": "first"}
    assert common_links([{}, {"page": None}]) == {}


@pytest.mark.parametrize("name", ["page_url", "grafana_url", "kibana_url"])
@pytest.mark.parametrize(
    "value",
    ["ops.example", "ftp://ops.example", "http://", "https:///x", "http://a b", "http://h/?q=1", "http://h/#x", "http://u:p@h", "http://h\x07"],
)
def test_a_base_that_is_none_is_refused(name: str, value: str) -> None:
    with pytest.raises(ValueError, match="allowed: http"):
        settings(**{name: value})


def test_every_source_returns_them(tmp_path: Path) -> None:
    told = [msgspec.structs.replace(incident(name), links={"page": f"file:///{name}.html", "grafana": name}) for name in ("0000000000a1", "0000000000b2")]
    paths = [write(tmp_path / one.id, RECORDS, PROCESSES, [one]) for one in told]
    for path, one in zip(paths, told, strict=True):
        (found,) = JournalSource(path).incidents()
        assert found.links == one.links
    (found,) = Merged([JournalSource(path) for path in paths]).incidents()
    assert found.links == told[0].links
    assert found.merged == [told[1].id]
