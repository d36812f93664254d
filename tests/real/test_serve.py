"""`llmtrace serve` as a process, asked over real sockets by friends and others."""

from __future__ import annotations

import gzip
import http.client
import json
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import pytest

from llmtrace.show.server import wire
from llmtrace.show.server.answers import Answer
from tests.conftest import Directories
from tests.support.agents import TRACE as RUNNING
from tests.support.agents import Rank, agent, until
from tests.support.contexts import CONTEXTS, TRACE, hostile
from tests.support.written import write_journal

LLMTRACE = str(Path(sys.executable).parent / "llmtrace")


class Served(NamedTuple):
    """A server that listens: its process, what it printed, and where."""

    process: subprocess.Popen[str]
    printed: str
    port: int

    def get(self, target: str, method: str = "GET", **headers: str) -> tuple[int, dict[str, str], bytes]:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        try:
            connection.request(method, target, headers={name.replace("_", "-"): value for name, value in headers.items()})
            answer = connection.getresponse()
            return answer.status, {name.lower(): value for name, value in answer.getheaders()}, answer.read()
        finally:
            connection.close()

    def raw(self, data: bytes) -> bytes:
        """All that comes back until the server closes."""
        with socket.create_connection(("127.0.0.1", self.port), timeout=30) as connection:
            try:
                connection.sendall(data)
                connection.shutdown(socket.SHUT_WR)
                return b"".join(iter(lambda: connection.recv(65536), b""))
            except (ConnectionResetError, BrokenPipeError):  # it was closed before all of it was sent
                return b""


@contextmanager
def serve(*arguments: str, end: int = signal.SIGINT) -> Iterator[Served]:
    """A server on a free port; it must end cleanly, and say nothing of its own, whatever it was asked."""
    process = subprocess.Popen([LLMTRACE, "serve", "--port", "0", *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        printed = process.stdout.readline()
        match = re.search(r"http://\S+?:(\d+)/", printed)
        assert match is not None, process.communicate()
        yield Served(process, printed, int(match[1]))
        process.send_signal(end)
        output, errors = process.communicate(timeout=20)
        assert (process.returncode, output) == (0, "")
        assert errors.strip() == ""
    finally:
        process.kill()
        process.wait()


@pytest.fixture(scope="module")
def journal(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("journal")
    write_journal(path, CONTEXTS["exception"]())
    return path


@pytest.fixture(scope="module")
def served(journal: Path) -> Iterator[Served]:
    with serve("--dir", str(journal)) as found:
        yield found


def incident_id(served: Served) -> str:
    match = re.search(r'href="incident/(\w+)"', served.get("/")[2].decode())
    assert match is not None
    return match[1]


def test_it_prints_where_it_is_and_what_is_there_can_be_read(served: Served) -> None:
    assert served.printed.startswith(f"Runs and incidents are at http://127.0.0.1:{served.port}/ ")
    name = incident_id(served)
    status, headers, body = served.get(f"/incident/{name}")
    assert (status, headers["content-type"]) == (200, "text/html; charset=utf-8")
    assert body.decode().rstrip().endswith("</html>")
    assert json.loads(served.get(f"/incident/{name}/data.json")[2])["incident_id"] == name
    assert served.get(f"/trace/{TRACE}")[0] == 200
    assert served.get("/healthz")[2] == b"ok\n"


def test_reports_are_what_the_command_writes(served: Served, journal: Path, tmp_path: Path) -> None:
    name = incident_id(served)
    markdown, perfetto = tmp_path / "report.md", tmp_path / "perfetto.json"
    files = ("--markdown", str(markdown), "--perfetto", str(perfetto))
    subprocess.run([LLMTRACE, "context", name, "--dir", str(journal), *files], check=True, capture_output=True, timeout=60)
    status, headers, body = served.get(f"/incident/{name}/perfetto.json")
    assert (status, headers["content-type"]) == (200, "application/json")
    assert f'filename="{name}.perfetto.json"' in headers["content-disposition"]
    assert json.loads(body) == json.loads(perfetto.read_bytes())
    status, headers, body = served.get(f"/incident/{name}/report.md")
    assert (status, headers["content-type"]) == (200, "text/markdown; charset=utf-8")
    assert body.decode().splitlines()[0] == markdown.read_text().splitlines()[0]


def test_every_answer_forbids_what_no_page_needs(served: Served) -> None:
    for target in ("/", f"/incident/{incident_id(served)}", "/nowhere", "/healthz", f"/incident/{incident_id(served)}/data.json"):
        headers = served.get(target)[1]
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["referrer-policy"] == "no-referrer"
        assert headers["cache-control"] == "no-store"
        assert "default-src 'none'" in headers["content-security-policy"]
        assert "frame-ancestors 'none'" in headers["content-security-policy"]
        assert "unsafe" not in headers["content-security-policy"]


def test_a_head_is_a_get_without_its_body(served: Served) -> None:
    target = f"/incident/{incident_id(served)}/data.json"
    asked, told = served.get(target, "HEAD"), served.get(target)
    assert asked[0] == told[0] == 200
    assert asked[2] == b""
    assert asked[1]["content-length"] == told[1]["content-length"]


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "CONNECT", "LLMTRACE"])
def test_other_methods_are_refused(served: Served, method: str) -> None:
    status, headers, _ = served.get("/", method)
    assert (status, headers["allow"]) == (405, "GET, HEAD")


@pytest.mark.parametrize(
    "target",
    [
        "/../../../../etc/passwd", "/incident/..%2f..%2fetc%2fpasswd", "/incident/%2e%2e/%2e%2e", "/%00", "/incident/a%00b", "//etc/passwd", "/incident/%c0%ae",
        "/incident/" + "a" * 5000, "/trace/<script>alert(1)</script>", "/incident/%0d%0aSet-Cookie:%20x=1", "/.git/config", "/incident/a/../../data.json",
    ],
)  # fmt: skip
def test_a_path_leads_to_pages_and_nowhere_else(served: Served, target: str) -> None:
    answer = served.raw(f"GET {target} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
    head, _, body = answer.partition(b"\r\n\r\n")
    assert re.match(rb"HTTP/1.1 (400|404) ", head)
    assert b"set-cookie" not in head.lower()
    assert b"root:" not in body and b"<script>alert" not in body


@pytest.mark.parametrize(
    "data",
    [
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", b"\0" * 100, b"GET\r\n\r\n", b"GET / HTTP/9.9\r\n\r\n", b"GET / HTTP/1.1\r\nHost localhost\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: a\r\nHost: localhost\r\n\r\n", b"GET /\x00 HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"GET /" + b"a" * 70_000 + b" HTTP/1.1\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: localhost\r\nX: " + b"a" * 70_000 + b"\r\n\r\n", b"GET / HTTP/1.1\r\n" + b"X: y\r\n" * 500 + b"\r\n", b"GET /\r\n\r\n", b"",
        b"GET http://localhost/ HTTP/1.1\r\nHost: localhost\r\n\r\n", b"GET / HTTP/1.1\r\nHost: localhost\r\nHost: localhost\r\n\r\n",
    ],
    ids=range(14),
)  # fmt: skip
def test_what_is_no_request_gets_no_page_and_ends_nothing(served: Served, data: bytes) -> None:
    answer = served.raw(data)
    assert b"200 OK" not in answer and b"Traceback" not in answer
    assert served.get("/healthz")[0] == 200


@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1.evil.example", "10.1.2.3:80"])
def test_a_page_of_elsewhere_whose_name_leads_here_reads_nothing(served: Served, host: str) -> None:
    status, _, body = served.get("/", Host=host)
    assert status == 403
    assert TRACE.encode() not in body
    assert served.get("/", Host="localhost:9999")[0] == 200  # a forwarded port


def test_a_proxy_s_name_is_one_of_its_own(journal: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LLMTRACE_PAGE_URL", "https://ops.example/llmtrace")
    with serve("--dir", str(journal)) as found:
        assert found.get("/", Host="ops.example")[0] == 200
        assert found.get("/", Host="evil.example")[0] == 403


def test_elsewhere_than_on_loopback_it_asks_for_the_token_that_it_printed(journal: Path) -> None:
    with serve("--dir", str(journal), "--host", "0.0.0.0", end=signal.SIGTERM) as found:
        match = re.search(r"/\?token=([\w-]{32,})", found.printed)
        assert match is not None
        status, _, body = found.get("/")
        assert status == 401
        assert TRACE.encode() not in body
        assert found.get("/healthz")[0] == 200
        assert found.get("/", Authorization=f"Bearer {match[1]}")[0] == 200
        assert found.get("/?token=wrong")[0] == 401
        status, headers, _ = found.get(f"/?q=x&token={match[1]}")
        assert (status, headers["location"]) == (303, "./?q=x")
        cookie = headers["set-cookie"].partition(";")[0]
        assert found.get("/?q=x", Cookie=cookie)[0] == 200
        assert found.get("/", Cookie=cookie + "0")[0] == 401


def test_a_token_may_be_chosen_and_holds_on_loopback_too(journal: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with serve("--dir", str(journal), "--token", "chosen-by-somebody") as found:
        assert found.get("/")[0] == 401
        assert found.get("/", Authorization="Bearer chosen-by-somebody")[0] == 200
        assert found.get("/", Authorization="Bearer chosen-by-somebody", Host="evil.example")[0] == 403
    monkeypatch.setenv("LLMTRACE_SERVE_TOKEN", "from-the-environment")  # other users see no environment, but they see arguments
    with serve("--dir", str(journal)) as found:
        assert found.get("/", Authorization="Bearer from-the-environment")[0] == 200


def test_answers_are_compressed_where_that_is_understood(served: Served) -> None:
    target = f"/incident/{incident_id(served)}/data.json"
    plain = served.get(target)
    packed = served.get(target, Accept_Encoding="gzip")
    assert "content-encoding" not in plain[1]
    assert packed[1]["content-encoding"] == "gzip"
    assert packed[1]["vary"] == "Accept-Encoding"
    assert len(packed[2]) < len(plain[2]) / 2
    assert gzip.decompress(packed[2]) == plain[2]


def test_many_at_once_are_all_answered(served: Served) -> None:
    targets = [f"/incident/{incident_id(served)}", "/", f"/trace/{TRACE}/data.json", "/incident/ffffffffffff"] * 6
    with ThreadPoolExecutor(12) as pool:
        found = list(pool.map(lambda target: served.get(target)[0], targets))
    assert found == [200, 200, 200, 404] * 6


def test_a_reader_that_leaves_in_the_middle_ends_its_own_answer_only(served: Served) -> None:
    name = incident_id(served)
    for _ in range(10):
        connection = socket.create_connection(("127.0.0.1", served.port))
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")  # a reset, at once
        connection.sendall(f"GET /incident/{name} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
        connection.close()
    assert served.get(f"/incident/{name}")[0] == 200


def test_requests_that_drip_hold_up_nobody_for_long(served: Served) -> None:
    slow = [socket.create_connection(("127.0.0.1", served.port)) for _ in range(wire.CONNECTIONS + 8)]
    for connection in slow:
        connection.settimeout(30)
        connection.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\nX: ")
    stop = threading.Event()

    def drip() -> None:
        while not stop.wait(0.5):
            for connection in slow:
                try:
                    connection.send(b"a")
                except OSError:
                    pass

    dripping = threading.Thread(target=drip, daemon=True)
    dripping.start()
    try:
        until(lambda: answered(served), 30)  # their time is over, although they still send
    finally:
        stop.set()
        dripping.join(10)
        for connection in slow:
            connection.close()


def answered(served: Served) -> bool:
    try:
        return served.get("/")[0] == 200
    except (OSError, http.client.HTTPException):  # turned away
        return False


def test_one_that_does_not_read_its_answer_is_let_go(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same sockets with shorter times."""
    monkeypatch.setattr(wire, "WRITE_S", 0.3)
    monkeypatch.setattr(wire, "CONNECTIONS", 1)
    big = Answer(kind="text/plain", body=bytes(64 << 20))
    server = wire.Server(
        "127.0.0.1", 0, lambda request: big if request.parts == ("big",) else Answer(body=b"ok"), lambda refused, _: Answer(status=refused.status)
    )
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    try:
        with socket.create_connection(("127.0.0.1", server.server_port), timeout=30) as lazy:
            lazy.sendall(b"GET /big HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert lazy.recv(10) == b"HTTP/1.1 2"
            one = Served(None, "", server.server_port)  # type: ignore[arg-type]
            until(lambda: answered(one), 20)  # its place is free again
    finally:
        server.shutdown()
        server.server_close()
        thread.join(10)


def test_a_running_job_is_followed_and_a_journal_may_come_later(llmtrace_dirs: Directories) -> None:
    llmtrace_dirs.path.mkdir()
    with serve("--dir", str(llmtrace_dirs.path)) as found:
        assert b"No runs yet" in found.get("/")[2]
        with Rank() as rank, agent():
            rank.tell("log", 5)
            target = f"/trace/{RUNNING}/data.json"
            until(lambda: b"line 4" in found.get(target)[2])
            assert json.loads(found.get(target)[2])["follow"] is True
            rank.tell("log", 5)
            until(lambda: b"line 9" in found.get(target)[2])
            assert b"data-live" in found.get(f"/trace/{RUNNING}")[2]


def test_hostile_lines_are_inert(tmp_path: Path) -> None:
    write_journal(tmp_path, hostile())
    with serve("--dir", str(tmp_path)) as found:
        page = found.get(f"/incident/{incident_id(found)}")
        assert page[0] == 200
        assert b"\x1b[2J" not in page[2]
        page[2].decode()


def test_a_damaged_journal_is_a_page_that_says_so(tmp_path: Path) -> None:
    (tmp_path / "journal.1.sqlite").write_bytes(b"no journal" * 5000)
    with serve("--dir", str(tmp_path)) as found:
        status, _, body = found.get("/")
        assert status == 503
        assert b"The journal cannot be read" in body
        assert b"Traceback" not in body


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([LLMTRACE, "serve", *arguments], capture_output=True, text=True, timeout=60, check=False)


def test_a_port_in_use_is_refused_in_one_line(served: Served, journal: Path) -> None:
    done = run("--dir", str(journal), "--port", str(served.port))
    assert done.returncode == 1
    assert done.stderr == f"llmtrace: cannot listen at 127.0.0.1:{served.port}: somebody else listens there\n"


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (("--host", "no.such.host.invalid"), 1), (("--host", "192.0.2.1", "--token", "long-enough-it-is"), 1), (("--dir", "/nowhere/at/all"), 1),
        (("--token", "short"), 2), (("--token", "with a blank in it"), 2), (("--source", "loki"), 2), (("--port", "99999"), 2),
    ],
)  # fmt: skip
def test_what_cannot_be_is_refused_at_once(llmtrace_dirs: Directories, arguments: tuple[str, ...], code: int) -> None:
    done = run(*arguments)
    assert done.returncode == code
    assert done.stdout == ""
    assert "Traceback" not in done.stderr
    assert code == 2 or len(done.stderr.splitlines()) == 1


def test_it_ends_while_somebody_waits(journal: Path) -> None:
    with serve("--dir", str(journal)) as found:
        waiting = socket.create_connection(("127.0.0.1", found.port))
        waiting.sendall(b"GET / HTTP/1.1\r\n")
        time.sleep(0.2)
    waiting.close()
