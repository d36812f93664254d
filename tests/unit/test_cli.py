"""The command line from outside: what it prints, what it refuses and how it ends."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from llmtrace.cli.times import length_ns, moment_ns
from llmtrace.config import resolve
from llmtrace.directory import choose
from llmtrace.frames import Description, Epoch, encode_description
from llmtrace.record import Identity
from llmtrace.ring import RingReader, create_ring, layout
from llmtrace.sources.context import Context
from tests.conftest import Directories
from tests.support.contexts import TRACE, exception, hostile, kill
from tests.support.written import write_journal

LLMTRACE = str(Path(sys.executable).parent / "llmtrace")
RECORD_KEYS = [
    "id",
    "time_ns",
    "kind",
    "name",
    "severity",
    "body",
    "duration_ns",
    "trace_id",
    "span_id",
    "parent_span_id",
    "rank",
    "node",
    "step",
    "attributes",
]


def cli(*arguments: str, stdin: bytes | None = None, **environ: str) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run([LLMTRACE, *arguments], input=stdin, capture_output=True, env={**os.environ, **environ}, timeout=60, check=False)


def one_line(done: subprocess.CompletedProcess[bytes], code: int) -> str:
    """The single line of a refusal."""
    assert done.returncode == code, done.stderr
    assert done.stdout == b""
    lines = done.stderr.decode().splitlines()
    assert len(lines) == 1, lines
    return lines[0]


@pytest.fixture(scope="module")
def broken() -> Context:
    return kill()


@pytest.fixture(scope="module")
def journal(tmp_path_factory: pytest.TempPathFactory, broken: Context) -> str:
    """A directory with a job that broke."""
    path = tmp_path_factory.mktemp("journal")
    write_journal(path, broken)
    return str(path)


@pytest.fixture
def incident(broken: Context) -> str:
    assert broken.incident is not None
    return broken.incident.id


def test_runs_as_json_is_a_row_a_run(journal: str) -> None:
    done = cli("runs", "--json", "--dir", journal)
    (row,) = json.loads(done.stdout)
    assert list(row) == ["trace_id", "attempt", "run", "job", "state", "started_ns", "ended_ns", "nodes", "ranks", "last_step"]
    assert (row["trace_id"], row["state"], row["ranks"], row["nodes"], row["job"], row["last_step"]) == (TRACE, "failed", 4, ["node-a"], "gpt-demo", 340)


def test_incidents_as_json_has_the_interfaces_keys(journal: str, broken: Context) -> None:
    (row,) = json.loads(cli("incidents", "--json", "--dir", journal).stdout)
    assert set(row) == {"id", "trace_id", "onset_ns", "detected_ns", "category", "role", "summary", "culprit", "window", "evidence", "links"}
    assert broken.incident is not None
    assert (row["id"], row["onset_ns"], row["culprit"]) == (broken.incident.id, broken.incident.onset_ns, {"rank": 1, "node": "node-a", "gpu": None})
    assert row["links"] == {"page": None, "grafana": None, "kibana": None}


def test_incidents_of_one_trace_by_its_beginning(journal: str) -> None:
    assert len(json.loads(cli("incidents", "--trace", TRACE[:6], "--json", "--dir", journal).stdout)) == 1
    assert "there is no trace 'ffff'" in one_line(cli("incidents", "--trace", "ffff", "--json", "--dir", journal), 1)


def test_context_as_json_is_a_record_a_line_in_order_of_time(journal: str, broken: Context, incident: str) -> None:
    rows = [json.loads(line) for line in cli("context", incident, "--json", "--dir", journal).stdout.splitlines()]
    assert all(list(row) == RECORD_KEYS for row in rows)
    times = [row["time_ns"] for row in rows]
    assert times == sorted(times)
    assert all(isinstance(moment, int) for moment in times)
    assert {row["id"] for row in rows} >= {record.id for record in broken.records}
    assert {row["trace_id"] for row in rows} == {TRACE}
    assert {row["severity"] for row in rows} == {"INFO", "ERROR", "FATAL"}


def test_context_narrows_by_rank_kind_and_time(journal: str, broken: Context, incident: str) -> None:
    rows = [json.loads(line) for line in cli("context", incident, "--json", "--dir", journal, "--rank", "2", "--kind", "span,sample").stdout.splitlines()]
    assert {row["rank"] for row in rows} == {2}
    assert {row["kind"] for row in rows} == {"span", "sample"}
    onset_ns = broken.incident.onset_ns if broken.incident else 0
    near = [json.loads(line) for line in cli("context", incident, "--json", "--dir", journal, "--before", "500ms", "--after", "0s").stdout.splitlines()]
    assert min(row["time_ns"] for row in near) >= onset_ns - 500_000_000
    at = [json.loads(line) for line in cli("context", TRACE, "--at", str(onset_ns), "--before", "1", "--json", "--dir", journal).stdout.splitlines()]
    assert {row["time_ns"] for row in at} >= {row["time_ns"] for row in near if row["name"] != "llmtrace.incident"}


def test_the_newest_incident_is_last_and_a_beginning_is_enough(journal: str, incident: str) -> None:
    whole = cli("context", incident, "--dir", journal).stdout
    for key in ("last", incident[:5]):
        assert cli("context", key, "--dir", journal).stdout.splitlines()[0] == whole.splitlines()[0]
    assert b"rank 1 on node-a was killed by SIGKILL in step 340" in whole
    assert f"llmtrace context {incident} --dir {journal} --rank 1 --all | less".encode() in whole


def test_lists_for_people_fit_80_columns_and_name_what_the_next_command_takes(journal: str, incident: str) -> None:
    for command, names in (("runs", ["gpt-demo", "failed", TRACE[:8]]), ("incidents", [incident, "process_death"])):
        text = cli(command, "--dir", journal).stdout.decode()
        assert max(map(len, text.splitlines())) <= 80
        assert [name for name in names if name not in text] == []


def test_two_directories_are_read_as_one(journal: str, tmp_path: Path) -> None:
    write_journal(tmp_path / "b", exception(2, 1))
    rows = json.loads(cli("incidents", "--json", "--dir", journal, "--dir", str(tmp_path / "b")).stdout)
    assert len(rows) >= 1
    assert len(json.loads(cli("runs", "--json", "--dir", journal, "--dir", str(tmp_path / "b")).stdout)) >= 1


def test_an_unknown_id_says_in_one_line_what_there_is(journal: str, incident: str) -> None:
    line = one_line(cli("context", "deadbeef", "--dir", journal), 1)
    assert "deadbeef" in line
    assert incident in line
    assert TRACE in line


def test_where_nothing_was_traced_lists_are_empty_and_context_says_so(tmp_path: Path) -> None:
    for command in ("runs", "incidents"):
        done = cli(command, "--json", LLMTRACE_DIR=str(tmp_path))
        assert (done.returncode, done.stdout, done.stderr) == (0, b"[]\n", b"")
    assert "No runs yet" in cli("runs", LLMTRACE_DIR=str(tmp_path)).stdout.decode()
    assert "nothing has been traced there yet" in one_line(cli("context", "last", LLMTRACE_DIR=str(tmp_path)), 1)
    assert "no journal in" in one_line(cli("runs", "--json", "--dir", str(tmp_path / "missing")), 1)


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["runs", "--source", "loki"], "allowed: journal"),
        (["context", "x", "--kind", "log,metric"], "allowed: log, span, sample, event"),
        (["context", "x", "--at", "yesterday"], "allowed: 2026-11-30T03:14:07"),
        (["context", "x", "--before", "-3"], "allowed: a number with"),
        (["demo", "--fault", "fire"], "allowed: oom, kill, exception, none"),
    ],
)
def test_bad_usage_exits_2_and_says_what_is_allowed(arguments: list[str], told: str, tmp_path: Path) -> None:
    assert told in one_line(cli(*arguments, LLMTRACE_DIR=str(tmp_path)), 2)


@pytest.mark.parametrize("arguments", [["nonsense"], ["context"], ["context", "x", "--rank", "-1"], ["runs", "--no-such-option"], ["run"]])
def test_what_the_parser_refuses_exits_2(arguments: list[str]) -> None:
    done = cli(*arguments)
    assert done.returncode == 2
    assert done.stderr


def test_a_reader_that_leaves_early_ends_us_quietly(journal: str, incident: str) -> None:
    done = subprocess.run(["sh", "-c", f"{LLMTRACE} context {incident} --json --dir {journal} | head -n 1"], capture_output=True, timeout=60, check=False)
    assert len(done.stdout.splitlines()) == 1
    assert done.stderr == b""


def in_a_terminal(*arguments: str, columns: int = 100, **environ: str) -> str:
    """What a command writes to a real (pseudo) terminal."""
    parent, child = pty.openpty()
    env = {**{k: v for k, v in os.environ.items() if k not in ("NO_COLOR", "FORCE_COLOR")}, "TERM": "xterm-256color", "COLUMNS": str(columns), **environ}
    with subprocess.Popen([LLMTRACE, *arguments], stdin=child, stdout=child, stderr=child, env=env) as process:
        os.close(child)
        seen = b""
        try:
            while part := os.read(parent, 65536):
                seen += part
        except OSError:  # the other end is closed: all is read
            pass
        process.wait(60)
    os.close(parent)
    return seen.decode(errors="replace")


def test_colours_are_for_terminals_and_can_be_had_without(journal: str, incident: str) -> None:
    assert "\x1b[" in in_a_terminal("context", incident, "--dir", journal)
    assert "\x1b" not in in_a_terminal("context", incident, "--dir", journal, "--no-color")
    assert "\x1b" not in in_a_terminal("context", incident, "--dir", journal, NO_COLOR="1")
    assert b"\x1b" not in cli("context", incident, "--dir", journal).stdout


def test_a_terminal_that_speaks_no_utf8_gets_what_it_can_show(tmp_path: Path) -> None:
    write_journal(tmp_path, hostile())
    for encoding in ("ascii", "latin-1", "utf-8"):
        done = cli("context", "last", "--dir", str(tmp_path), PYTHONIOENCODING=encoding, PYTHONUTF8="0", LC_ALL="C")
        assert done.returncode == 0, done.stderr
        text = done.stdout.decode(encoding)
        assert "[red]markup[/red]" in text
        assert "\x1b" not in text
        rows = cli("context", "last", "--json", "--dir", str(tmp_path), PYTHONIOENCODING=encoding, LC_ALL="C").stdout.decode("utf-8").splitlines()
        assert any("訓練損失" in (json.loads(row)["body"] or "") for row in rows)


def test_classify_takes_json_lines_and_plain_lines(tmp_path: Path) -> None:
    lines = b'{"id": "A7", "text": "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB"}\nepoch 3 done\n\n{broken\n\xff\xfe no text\n'
    done = cli("classify", "--json", stdin=lines)
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    assert [list(row) for row in rows] == [["id", "category", "role", "reason"]] * 4
    assert [row["id"] for row in rows] == ["A7", 2, 4, 5]
    assert (rows[0]["category"], rows[0]["role"]) == ("gpu_oom", "root_cause")
    (tmp_path / "log").write_bytes(lines)
    assert cli("classify", str(tmp_path / "log"), "--json").stdout == done.stdout
    assert "no such file" in one_line(cli("classify", str(tmp_path / "missing")), 1).lower()


def test_run_turns_tracing_on_and_the_exit_code_is_the_commands(tmp_path: Path) -> None:
    code = "import os, sys; print(os.environ['LLMTRACE'], os.environ['LLMTRACE_DIR'], sys.argv[1:]); sys.exit(7)"
    done = cli("run", "--dir", str(tmp_path), sys.executable, "-c", code, "--json", "-x")
    assert done.returncode == 7
    assert done.stdout.decode() == f"1 {tmp_path} ['--json', '-x']\n"
    assert cli("run", "sh", "-c", "kill -9 $$").returncode == -9
    assert "no such command" in one_line(cli("run", "no-such-command-7f3a"), 127)
    assert "ermission" in one_line(cli("run", str(tmp_path)), 126)


def test_run_with_an_option_that_it_does_not_have_is_bad_usage(tmp_path: Path) -> None:
    assert "--bogus: there is no such option" in one_line(cli("run", "--bogus", "true"), 2)


def test_a_service_for_a_folder_that_cannot_be_used_does_not_serve_another(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    done = cli("agent", "--dir", str(tmp_path / "file"))
    assert (done.returncode, done.stdout) == (1, b"")
    assert b"cannot hold the journal" in done.stderr


def test_a_journal_that_an_agent_is_just_making_is_one_with_nothing_in_it(tmp_path: Path) -> None:
    (tmp_path / "journal.1.sqlite").touch()
    done = cli("incidents", "--json", "--dir", str(tmp_path))
    assert (done.returncode, done.stdout, done.stderr) == (0, b"[]\n", b"")
    assert "nothing has been written yet" in one_line(cli("context", "last", "--dir", str(tmp_path)), 1)
    assert cli("doctor", LLMTRACE_DIR=str(tmp_path)).returncode == 0


def test_a_directory_that_may_not_be_looked_into_says_why_and_costs_no_other(journal: str) -> None:
    secret = "x" * 300  # what looking into another user's folder does, and as root as well
    assert "File name too long" in one_line(cli("runs", "--dir", secret), 1)
    assert "none is running here" in cli("off", "job", "--dir", secret).stderr.decode()
    done = cli("runs", "--json", "--dir", secret, "--dir", journal)
    assert (done.returncode, len(json.loads(done.stdout))) == (0, 1)
    assert b"is left out" in done.stderr


@pytest.fixture
def ring(llmtrace_dirs: Directories) -> Iterator[RingReader]:
    """A running process's ring: ours."""
    directory = choose(resolve())
    assert directory is not None
    writer = create_ring(directory.rings, directory.registry, span_id="ab" * 8, wanted_bytes=1 << 20)
    assert writer is not None
    assert writer.path is not None
    identity = Identity(trace_id=TRACE, span_id="ab" * 8, job="night run", rank=3, pid=os.getpid())
    assert writer.describe(encode_description(Description(epochs=[Epoch(time.monotonic_ns(), identity)])))
    writer.progress(41, 0)
    reader = RingReader(writer.path)
    yield reader
    reader.close()
    writer.close()


@pytest.mark.parametrize("key", ["night run", TRACE, TRACE[:4]])
def test_off_and_on_again_reach_a_running_ring(ring: RingReader, key: str) -> None:
    done = cli("off", key)
    assert done.returncode == 0, done.stderr
    assert "off in 1 process of night run" in done.stdout.decode()
    assert ring.header().off
    assert b"switched off" in cli("doctor").stdout
    assert cli("off", key, "--on").returncode == 0
    assert not ring.header().off


def test_off_without_such_a_job_says_what_runs(ring: RingReader) -> None:
    assert "there is night run" in one_line(cli("off", "other"), 1)
    assert not ring.header().off


def test_a_ring_whose_description_is_damaged_stops_neither_doctor_nor_off(ring: RingReader) -> None:
    with ring.path.open("r+b") as stream:
        stream.seek(8 * layout.DESCRIBED)
        stream.write((1 << 40).to_bytes(8, "little"))
    assert b"a job without a name" in cli("doctor").stdout
    assert "there is a job without a name" in one_line(cli("off", "other"), 1)


def test_doctor_names_every_setting_with_its_origin(ring: RingReader, llmtrace_dirs: Directories) -> None:
    done = cli("doctor", "--json", LLMTRACE_TEAM="vision")
    assert done.returncode == 0
    found = json.loads(done.stdout)
    settings = {f["name"]: (f["value"], f["more"]) for f in found if f["section"] == "settings"}
    assert settings["LLMTRACE_TEAM"] == ("vision", "environment")
    assert settings["LLMTRACE_DIR"] == (str(llmtrace_dirs.path), "environment")
    assert settings["LLMTRACE_WORKLOAD"] == ("train", "default")
    by_name = {(f["section"], f["name"]): f for f in found}
    assert "tmpfs" in by_name["places", "rings"]["more"]
    assert by_name["agent", "agent"]["value"] == "none runs"
    assert "step 41" in by_name["running", f"rank 3 (pid {os.getpid()})"]["more"]
    assert {f["name"] for f in found if f["section"] == "instruments"} >= {"logs", "failures", "oom"}
    assert by_name["versions", "llmtrace"]["value"][0].isdigit()


def test_doctor_says_what_is_wrong_once_and_still_exits_0(tmp_path: Path) -> None:
    done = cli("doctor", LLMTRACE_DIR=str(tmp_path / "new"), LLMTRACE_STRICT="perhaps", LLMTRACE_RING_DIR=str(tmp_path))
    assert done.returncode == 0, done.stdout
    text = done.stdout.decode()
    assert text.count("LLMTRACE_STRICT='perhaps' is ignored") == 1
    assert text.count("rings are memory files instead") == 1
    assert done.stderr == b""


def test_doctor_exits_1_where_the_journal_cannot_be_read(tmp_path: Path) -> None:
    (tmp_path / "journal.1.sqlite").write_bytes(b"no journal" * 1000)
    done = cli("doctor", LLMTRACE_DIR=str(tmp_path))
    assert "cannot be read" in done.stdout.decode()
    assert done.returncode == 1
    assert "journal" in one_line(cli("runs", LLMTRACE_DIR=str(tmp_path)), 1)


def test_secrets_are_masked(monkeypatch: pytest.MonkeyPatch) -> None:
    import msgspec

    from llmtrace.cli import checks

    settings = tuple(msgspec.structs.replace(s, secret=True) if s.name == "team" else s for s in checks.SETTINGS)
    monkeypatch.setattr(checks, "SETTINGS", settings)
    found = {f.name: f.value for f in checks.settings(resolve({"team": "hunter2"}))}
    assert found["LLMTRACE_TEAM"] == checks.MASK
    assert found["LLMTRACE_MODEL"] == "-"


def test_start_up_imports_neither_torch_nor_what_only_views_need() -> None:
    code = "import sys, llmtrace.cli.main as m; print(sorted(n for n in ('torch', 'lightning', 'rich', 'sqlite3', 'msgspec') if n in sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize(("text", "ns"), [("30s", 30 * 10**9), ("500ms", 5 * 10**8), ("2m", 120 * 10**9), ("1.5", 1_500_000_000), ("0s", 0)])
def test_lengths_of_time(text: str, ns: int) -> None:
    assert length_ns(text) == ns


def test_moments_of_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    now = 1_796_008_447 * 10**9 + 5  # 2026-11-30T03:14:07 UTC
    second = now - 5
    same = ["1796008447", "1796008447.0", "1796008447000", "1796008447000000", "1796008447000000000", "2026-11-30T03:14:07Z", "2026-11-30T04:14:07+01:00"]
    assert {moment_ns(text, now) for text in [*same, "2026-11-30 03:14:07", "03:14:07", "3:14:07"]} == {second}
    assert moment_ns("-5m", now) == now - 300 * 10**9
    assert moment_ns("now", now) == now
    assert moment_ns("03:14:08", now) == second + 10**9 - 86400 * 10**9
    for wrong in ("", "yesterday", "25:00", "2026-13-01", "-", "1e9"):
        with pytest.raises(ValueError, match=r"allowed|hour"):
            moment_ns(wrong, now)
