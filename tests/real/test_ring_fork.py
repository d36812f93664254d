"""A fork while every thread emits: the parent's ring stays the parent's, each child has its own, whoever kept a reference."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from llmtrace.ring import RingReader, find_rings

PROGRAM = r"""
import os, sys, threading, time
from pathlib import Path
from llmtrace.ring import create_ring

folder, registry = Path(sys.argv[1]), Path(sys.argv[2])
sys.setswitchinterval(1e-5)
memory = sys.argv[3] == "memory"
ring = create_ring(Path("/absent") if memory else folder, registry, span_id="a0", wanted_bytes=4 << 20)
kept = ring.append

def work(name):
    for number in range(10_000):
        kept(1, f"{name} {number}".encode())

threads = [threading.Thread(target=work, args=(f"thread-{n}",)) for n in range(4)]
for thread in threads:
    thread.start()
children = []
for which in range(8):
    pid = os.fork()
    if pid == 0:
        kept(1, b"a child in the parent's ring")
        ring.append(1, b"a child in the parent's ring")
        ring.progress(77, 7)
        ring.group(1, 7, 7)
        ring.end("raised")
        ring.describe(b"a child's")
        own = create_ring(folder, registry, span_id=f"b{which}", wanted_bytes=256 << 10, parent_span="a0")
        for number in range(500):
            own.append(1, f"child-{which} {number}".encode())
        own.end("clean")
        os._exit(0)
    children.append(pid)
    time.sleep(0.005)
for pid in children:
    assert os.waitpid(pid, 0)[1] == 0
for thread in threads:
    thread.join()
ring.end("clean")
sys.stdout.write("done\n")
sys.stdout.flush()
sys.stdin.readline()
"""


def check(tmp_path: Path, folder: Path, place: str) -> None:
    (tmp_path / "registry").mkdir()
    command = [sys.executable, "-W", "ignore", "-c", PROGRAM, str(folder), str(tmp_path / "registry"), place]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout
        assert process.stdin
        assert process.stdout.readline() == b"done\n"
        found = {}
        for path in find_rings(folder, tmp_path / "registry"):
            reader = RingReader(path)
            reading = reader.read(0, 0)
            header = reader.header()
            found[header.span_id] = (header, reading, [reading.data[f.start : f.end].decode().split(" ") for f in reading.frames], reader.descriptions())
            reader.close()
        process.stdin.close()
        assert process.wait(20) == 0
    header, reading, records, descriptions = found.pop(f"{0xA0:016x}")
    assert (header.count, reading.lost, header.ended, header.step, header.pid) == (40_000, 0, "clean", None, process.pid)
    assert descriptions == []
    assert sorted((name, int(number)) for name, number in records) == [(f"thread-{t}", n) for t in range(4) for n in range(10_000)]
    assert len(found) == 8
    for which, (header, reading, records, _) in enumerate(found[span] for span in sorted(found)):
        assert records == [[f"child-{which}", str(n)] for n in range(500)]
        assert (header.parent_span, header.ended, reading.lost) == (f"{0xA0:016x}", "clean", 0)
        assert header.pid not in (os.getpid(), process.pid)


def test_a_fork_while_threads_emit_leaves_each_process_its_own_ring(tmp_path: Path, llmtrace_dirs: tuple[Path, Path]) -> None:
    check(tmp_path, Path(llmtrace_dirs[1]), "tmpfs")


def test_a_fork_leaves_a_parents_memory_file_alone_too(tmp_path: Path, llmtrace_dirs: tuple[Path, Path]) -> None:
    check(tmp_path, Path(llmtrace_dirs[1]), "memory")
