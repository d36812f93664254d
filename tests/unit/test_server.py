"""The server's parts without a socket: what is read from an address, who may read, what a list shows."""

from __future__ import annotations

import re
from base64 import b64encode
from hashlib import sha256

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmtrace.record import Incident, Run
from llmtrace.show.server.answers import Answer, Asked, RefusedError, asked
from llmtrace.show.server.fields import LONGEST_NS, incident_stretch, language_asked, language_of, length_ns, moment_ns, trace_stretch
from llmtrace.show.server.lists import LISTED, PAGE_STYLE, front_page, refusal_page, variables
from llmtrace.show.server.routes import home
from llmtrace.show.server.security import Access, cookie_name, cookie_value, policy
from llmtrace.show.server.wire import takes_gzip
from llmtrace.show.server.words import WORDS
from tests.support.cases import ns
from tests.support.contexts import HOSTILE
from tests.support.small_job import incident

S = 10**9
TOKEN = "a-token-of-somebody"


def request(target: str = "/", **headers: str) -> Asked:
    return asked(target, {name.replace("_", "-"): value for name, value in headers.items()})


# addresses


def test_an_address_is_taken_apart_and_decoded() -> None:
    found = request("/incident/a%62c/data.json?before=5s&q=a+b%26&empty=", Host="x")
    assert found.parts == ("incident", "abc", "data.json")
    assert found.query == {"before": "5s", "q": "a b&", "empty": ""}
    assert found.headers == {"host": "x"}
    assert request("/").parts == ("",)


@pytest.mark.parametrize(
    "target", ["", "incident/a", "http://elsewhere/", "*", "/%ff", "/?q=%ff", "/ü", "/a\tb", "/?a=1&a=2", "/?" + "&".join(f"f{n}=1" for n in range(40))]
)
def test_an_address_that_is_not_well_formed_is_refused(target: str) -> None:
    with pytest.raises(RefusedError) as refused:
        request(target)
    assert refused.value.status == 400


def status_of(target: str) -> int:
    try:
        found = asked(target, {})
        for part in found.parts:
            incident_stretch(found, part)
            trace_stretch(found, part)
    except RefusedError as refused:
        return refused.status
    return 200


@given(st.text())
def test_no_address_does_anything_but_be_read_or_refused(target: str) -> None:
    assert {status_of(text) for text in (target, f"/{target}", f"/incident/{target}", f"/?{target}")} <= {200, 400, 404}


@pytest.mark.parametrize("key", ["..", "a/b", "", "a\0", "a b", "é", "x" * 65, "<script>"])
def test_what_is_no_id_is_not_found(key: str) -> None:
    with pytest.raises(RefusedError) as refused:
        incident_stretch(request(), key)
    assert refused.value.status == 404


@pytest.mark.parametrize(
    ("text", "ns"),
    [
        ("1764000000123", 1764000000123 * 10**6),
        ("1764000000123456789", 1764000000123456789),
        ("2025-11-24T16:00:00Z", 1764000000 * S),
        ("2025-11-24T17:00:00.5+01:00", 1764000000 * S + S // 2),
    ],
)
def test_a_moment(text: str, ns: int) -> None:
    assert moment_ns("at", text) == ns


@pytest.mark.parametrize(
    "text",
    [
        "",
        "now",
        "-5m",
        "1764000000",
        "1764000000.5",
        "2025-11-24T16:00:00",
        "16:00",
        "\uff11\uff17\uff16\uff14\uff10\uff10\uff10\uff10\uff10\uff10\uff10\uff10\uff10",
        "1e12",
        "0001-01-01T00:00:00Z",
        "9" * 30,
    ],
)
def test_what_is_no_moment_is_refused(text: str) -> None:
    with pytest.raises(RefusedError, match="milliseconds") as refused:
        moment_ns("at", text)
    assert refused.value.status == 400


@pytest.mark.parametrize(("text", "ns"), [("30s", 30 * S), ("500ms", S // 2), ("2m", 120 * S), ("7", 7 * S), ("0s", 0)])
def test_a_length(text: str, ns: int) -> None:
    assert length_ns("before", text) == ns


@pytest.mark.parametrize("text", ["", "-1s", "1.5s", "1h", "s", "9999999s", "\uff11s", "1 s", "1e3"])
def test_what_is_no_length_is_refused(text: str) -> None:
    with pytest.raises(RefusedError, match="30s") as refused:
        length_ns("before", text)
    assert refused.value.status == 400


def test_a_window_is_at_most_ten_minutes_and_not_empty() -> None:
    assert trace_stretch(request("/?before=599s&after=1s"), "a").before_ns == LONGEST_NS - S
    for query in ("before=600s&after=1s", "before=10m", "before=0&after=0"):
        with pytest.raises(RefusedError) as refused:
            trace_stretch(request(f"/?{query}"), "a")
        assert refused.value.status == 400


def test_the_link_of_an_alert_names_what_to_show_where_its_incident_is_unknown() -> None:
    found = incident_stretch(request("/?trace=5a&from=1764000000000&to=1764000035000"), "abc")
    assert found.instead is not None
    assert (found.instead.key, found.instead.at_ns, found.instead.before_ns, found.instead.after_ns) == ("5a", 1764000000 * S, 0, 35 * S)
    longer = incident_stretch(request("/?trace=5a&from=1764000000000&to=1764090000000"), "abc")
    assert longer.instead is not None and longer.instead.after_ns == LONGEST_NS
    assert incident_stretch(request("/?trace=5a&from=1764000000000"), "abc").instead is None
    for query in ("trace=..&from=1764000000000&to=1764000035000", "trace=5a&from=x&to=1764000035000", "trace=5a&from=1764000035000&to=1764000000000"):
        with pytest.raises(RefusedError):
            incident_stretch(request(f"/?{query}"), "abc")


def test_the_language_is_the_one_asked_for_else_the_browser_s_else_english() -> None:
    assert language_of(request("/?lang=zh", accept_language="en")) == "zh"
    assert language_of(request("/", accept_language="fr, zh-CN;q=0.8, en;q=0.7")) == "zh"
    assert language_of(request("/", accept_language="fr;q=0.8")) == "en"
    assert language_of(None) == "en"
    assert language_asked(request("/", accept_language="zh")) == ""
    with pytest.raises(RefusedError, match="en, zh"):
        language_asked(request("/?lang=fr"))


@pytest.mark.parametrize(("parts", "way"), [("/", "./"), ("/healthz", "./"), ("/incident/x", "../"), ("/incident/x/data.json", "../../")])
def test_the_way_home_needs_no_root(parts: str, way: str) -> None:
    assert home(request(parts)) == way


# who may read


@pytest.mark.parametrize("host", ["localhost", "localhost:8344", "LOCALHOST:1", "127.0.0.1:9", "127.8.8.8", "[::1]:8344", "ops.example:443"])
def test_a_loopback_server_answers_to_its_own_names(host: str) -> None:
    assert Access(None, ["Ops.example"], check_host=True).check(request(Host=host)) is None


@pytest.mark.parametrize(
    "host",
    ["", "evil.example", "127.0.0.1.evil.example", "localhost.evil.example", "10.0.0.1", "localhost:x", "a@localhost", "[::2]", "[localhost", "localhost:1:2"],
)
def test_a_loopback_server_answers_to_no_other_name(host: str) -> None:
    with pytest.raises(RefusedError) as refused:
        Access(None, check_host=True).check(request(Host=host))
    assert refused.value.status == 403


def access() -> Access:
    return Access(TOKEN, check_host=False)


@pytest.mark.parametrize("given", ["", TOKEN[:-1], TOKEN + "x", TOKEN.upper(), "\udcff", "ü"])
def test_without_the_token_nothing_is_answered(given: str) -> None:
    tries = [
        request(),
        msgspec.structs.replace(request(), query={"token": given}),
        request(Authorization=f"Bearer {given}"),
        request(Authorization=TOKEN),
        request(Cookie=f"{cookie_name(TOKEN)}={given}"),
        request(Cookie=f"{cookie_name(TOKEN)}={TOKEN}"),  # the token itself is no cookie
        request(Cookie="\0;=;;;"),
    ]
    for one in tries:
        with pytest.raises(RefusedError) as refused:
            access().check(one)
        assert refused.value.status == 401


def test_the_token_in_an_address_becomes_a_cookie_and_leaves_the_address() -> None:
    answer = access().check(request(f"/incident/a%20b?token={TOKEN}&before=5s"))
    assert isinstance(answer, Answer)
    assert answer.status == 303
    assert answer.headers["Location"] == "./a%20b?before=5s"
    name, _, rest = answer.headers["Set-Cookie"].partition("=")
    value, *marks = rest.split("; ")
    assert {"HttpOnly", "SameSite=Lax", "Path=/"} <= set(marks)
    assert TOKEN not in answer.headers["Set-Cookie"]
    assert access().check(request(Cookie=f"other=1; {name}={value}")) is None
    front = access().check(request(f"/?token={TOKEN}"))
    assert front is not None and front.headers["Location"] == "./"


def test_a_bearer_needs_no_cookie() -> None:
    assert access().check(request(Authorization=f"bearer {TOKEN}")) is None


def test_the_cookie_of_one_server_opens_no_other() -> None:
    assert cookie_name(TOKEN) != cookie_name("another-token-it-is")
    assert cookie_value(TOKEN) != cookie_value("another-token-it-is")


def digest(text: str) -> str:
    return b64encode(sha256(text.encode()).digest()).decode()


def test_a_page_may_run_its_own_scripts_and_nothing_else() -> None:
    html = '<script type="application/json" id="data">{"a": 1}</script><style>p {}</style><SCRIPT>run(1)</SCRIPT>'
    rules = dict(rule.split(" ", 1) for rule in policy(html).split("; "))
    assert rules["script-src"] == f"'sha256-{digest('run(1)')}'"
    assert rules["style-src"] == f"'sha256-{digest('p {}')}'"
    assert rules["default-src"] == rules["frame-ancestors"] == rules["base-uri"] == "'none'"
    assert "script-src 'none'" in policy("<p>")


@pytest.mark.parametrize(
    ("accepted", "taken"),
    [
        ("gzip, deflate, br", True),
        ("br;q=1.0, gzip;q=0.5", True),
        ("*", True),
        ("", False),
        ("br", False),
        ("gzip;q=0", False),
        ("identity, gzip ; q=0.000", False),
    ],
)
def test_gzip_is_used_where_it_is_taken(accepted: str, taken: bool) -> None:
    assert takes_gzip(accepted) == taken


# lists


def run(number: int, **facts: object) -> Run:
    known: dict[str, object] = {
        "trace_id": f"{number:032x}", "attempt": "1", "run": 1, "job": f"job-{number}", "state": "failed", "started_ns": ns(number), "ended_ns": ns(number + 5),
        "nodes": ["node-a"], "ranks": 2, "last_step": 40,
    }  # fmt: skip
    return Run(**(known | facts))  # type: ignore[arg-type]


def front(incidents: list[Incident], runs: list[Run], search: str = "", language: str = "en") -> str:
    return front_page(incidents, runs, search, language, ns(1000))


def test_the_newest_stand_first_and_lead_to_their_pages() -> None:
    html = front([incident("aaaa", 100), incident("bbbb", 200)], [run(1), run(2)])
    assert re.findall(r'href="incident/(\w+)"', html) == ["bbbb", "aaaa"]
    assert re.findall(r'href="trace/(\w+)"', html) == [f"{2:032x}", f"{1:032x}"]


@pytest.mark.parametrize(
    ("search", "found"),
    [
        ("bbbb", ["bbbb"]),
        ("RANK 1 second", ["bbbb"]),
        ("second first", []),
        (f"{2:032x}", [f"{2:032x}"]),
        ("job- node-a", [f"{2:032x}", f"{1:032x}"]),
        ("failed", ["bbbb", f"{2:032x}", f"{1:032x}"]),
    ],
)
def test_every_word_of_a_search_must_occur(search: str, found: list[str]) -> None:
    html = front([incident("aaaa", summary="first"), incident("bbbb", summary="the second failed")], [run(1), run(2)], search)
    assert re.findall(r'href="(?:incident|trace)/(\w+)"', html) == found
    assert f'value="{search}"' in html


def test_a_search_without_a_match_says_so() -> None:
    assert front([incident()], [run(1)], "nowhere").count("Nothing here has these words.") == 2


def test_lists_are_bounded_and_say_what_is_left_out() -> None:
    html = front([incident(f"{n:012x}", n) for n in range(LISTED + 3)], [])
    assert html.count('href="incident/') == LISTED
    assert "3 older ones are not shown" in html


def test_whatever_a_job_calls_itself_is_text() -> None:
    nasty = [*HOSTILE, '"><script>alert(1)</script>', "javascript:alert(1)", "{{ 7*7 }}"]
    html = front([incident(summary=text) for text in nasty], [run(1, job=text, nodes=[text]) for text in nasty])
    assert "<script" not in html
    assert "\x1b" not in html and "\u202e" not in html
    assert "{{ 7*7 }}" in html
    assert 'href="javascript' not in html
    html.encode(errors="strict")
    searched = front([incident()], [], nasty[-3])
    assert 'value="&#34;&gt;&lt;script&gt;alert(1)&lt;/script&gt;"' in searched


def test_without_anything_the_front_page_says_how_to_begin() -> None:
    html = front([], [])
    assert "No incidents." in html
    assert "llmtrace run python train.py" in html
    assert "没有故障" in front([], [], language="zh")


def test_a_refusal_says_why_and_leads_back() -> None:
    answer = refusal_page(RefusedError(404, "nothing is called '<b>'"), "en", "../", as_json=False)
    text = answer.body.decode()
    assert answer.status == 404
    assert "Nothing is called &#39;&lt;b&gt;&#39;" in text
    assert 'href="../"' in text
    assert "href=" not in refusal_page(RefusedError(401, "no"), "en", None, as_json=False).body.decode().partition("</head>")[2]
    data = refusal_page(RefusedError(404, "no\nsuch"), "en", "../", as_json=True)
    assert (data.kind, msgspec.json.decode(data.body)) == ("application/json", {"error": "No | such"})


def test_every_word_has_both_languages_and_the_page_s_colours_are_found() -> None:
    assert all(english and chinese for english, chinese in WORDS.values())
    for selector in (":root", ":root.dark"):
        declared = variables(PAGE_STYLE.read_text(), selector)
        assert all(f"--{name}:" in declared for name in ("ground", "surface", "ink", "muted", "faint", "edge", "accent", "bad", "good", "warn"))
    with pytest.raises(LookupError):
        variables("p {}", ":root")
