"""Where there is little room or none: smaller rings, then memory files, then off with one warning; never a SIGBUS, never more than an eighth."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from llmtrace.ring import RingReader, find_rings

MIB = 1 << 20

PRELUDE = r'''
import json, os, resource, subprocess, sys, threading, time
from pathlib import Path
from llmtrace.guard import guard
from llmtrace.ring import RingError, RingReader, create_ring, find_rings
from llmtrace.ring.create import allotment

tmpfs, registry = Path(sys.argv[1]), Path(sys.argv[2])

def mount(mib):
    """A tmpfs of that size; where this place forbids mounts, a folder of /dev/shm that claims to have no more room."""
    done = subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={mib}m", "tmpfs", str(tmpfs)], capture_output=True)
    if done.returncode == 0:
        return tmpfs
    folder = Path(sys.argv[3])
    real = os.statvfs
    def statvfs(path):
        taken = sum(p.stat().st_blocks * 512 for p in folder.rglob("*") if p.is_file())
        free = max(0, (mib << 20) - taken) // 4096
        return os.statvfs_result((4096, 4096, mib << 8, free, free, 100, 100, 100, 0, 255))
    os.statvfs = statvfs
    return folder

def fill(folder):
    """No page is left on the tmpfs."""
    room = os.statvfs(folder)
    size = room.f_bavail * room.f_frsize
    with open(folder / "dataset", "wb") as stream:
        while size > 0:
            size -= stream.write(bytes(min(size, 1 << 20)))

def emit(ring, laps):
    """Fill the ring that often, and say how many records that were."""
    frames = laps * ring.capacity // 1000 + 1
    for number in range(frames):
        ring.append(1, number.to_bytes(8, "little") * 124)
    return frames

def contents(path):
    reader = RingReader(path)
    reading = reader.read(0, 0)
    assert all(reading.data[f.start : f.start + 8] * 124 == reading.data[f.start : f.end] for f in reading.frames)
    header = reader.header()
    reader.close()
    return header, reading
'''


@pytest.fixture
def run_in_small_place(tmp_path: Path, llmtrace_dirs: tuple[Path, Path]):
    """Runs a script where it may mount (a mount namespace of its own, so that nothing stays mounted); returns what it prints as JSON."""
    (tmp_path / "tmpfs").mkdir()
    (tmp_path / "registry").mkdir()
    llmtrace_dirs[1].mkdir(exist_ok=True)

    def run(script: str) -> dict[str, object]:
        apart = ["unshare", "--mount"] if os.geteuid() == 0 else ["unshare", "--user", "--map-root-user", "--mount"]
        if subprocess.run([*apart, "true"], capture_output=True, check=False).returncode != 0:
            apart = []
        command = [*apart, sys.executable, "-c", PRELUDE + script, str(tmp_path / "tmpfs"), str(tmp_path / "registry"), str(llmtrace_dirs[1])]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout.splitlines()[-1]) | {"stderr": done.stderr}

    return run


def test_8_ranks_with_8_children_each_share_an_eighth_of_64_mb(run_in_small_place) -> None:
    found = run_in_small_place(r"""
folder = mount(64) / "llmtrace-0" / "8-15"
folder.mkdir(parents=True)
start_read, start_write = os.pipe()
most, stop = [0], threading.Event()

def watch():
    while not stop.is_set():
        most[0] = max(most[0], sum(p.stat().st_size for p in folder.glob("*.ring")))
        time.sleep(0.001)

def child(parent, number):
    os.set_blocking(start_read, True)
    ring = create_ring(folder, registry, span_id=f"{(parent + 1) * 256 + number + 1:016x}", wanted_bytes=256 << 10, parent_span=f"{parent + 1:016x}")
    return hold(ring)

def hold(ring):
    written = emit(ring, 3) if ring else 0
    (registry.parent / f"done-{os.getpid()}").write_text(str(written))
    try:
        os.read(start_read, 1)  # until the end
    finally:
        os._exit(0)

def rank(number):
    ring = create_ring(folder, registry, span_id=f"{number + 1:016x}", wanted_bytes=4 << 20, share=8)
    for which in range(8):
        if os.fork() == 0:
            child(number, which)
    hold(ring)

pids = []
for number in range(8):
    pids.append(os.fork())
    if pids[-1] == 0:
        os.close(start_write)
        rank(number)
watcher = threading.Thread(target=watch)
watcher.start()
end = time.monotonic() + 40
while len(list(registry.parent.glob("done-*"))) < 72 and time.monotonic() < end:
    time.sleep(0.02)
time.sleep(0.05)
stop.set()
watcher.join()
results = [contents(path) for path in find_rings(folder, registry)]
written = sum(int(p.read_text()) for p in registry.parent.glob("done-*"))
sizes = sorted(header.capacity + header.header_bytes for header, _ in results)
print(json.dumps({
    "done": len(list(registry.parent.glob("done-*"))), "rings": len(results), "on_tmpfs": len(list(folder.glob("*.ring"))), "most": most[0],
    "written": written, "accounted": sum(header.count for header, _ in results), "children": sum(bool(h.parent_span) for h, _ in results),
    "sizes": [sizes[0], sizes[-1]],
}))
os.close(start_write)
for pid in pids:
    os.waitpid(pid, 0)
""")
    assert found["done"] == found["rings"] == 72
    assert found["children"] == 64
    assert found["written"] == found["accounted"]
    assert found["most"] <= 8 * MIB  # type: ignore[operator]
    assert found["on_tmpfs"] > 30, found  # type: ignore[operator]  # who does not come to its turn within a second has a memory file
    assert found["stderr"] == ""


def test_a_full_tmpfs_gives_a_memory_file_that_is_read_through_proc(run_in_small_place) -> None:
    found = run_in_small_place(r"""
folder = mount(1)
fill(folder)
ring = create_ring(folder, registry, span_id="00000000000000ab", wanted_bytes=1 << 20)
written = emit(ring, 2)
[path] = find_rings(folder, registry)
header, reading = contents(path)
last = len(reading.frames)
print(json.dumps({"path": str(ring.path), "link": os.readlink(path), "name": path.name, "count": header.count, "written": written, "last": last}))
ring.close()
header, reading = contents(path)  # a stop must not take it away before the agent has read it
assert header.count == written
""")
    assert found["path"] == "None"
    assert str(found["link"]).startswith("/proc/")
    assert str(found["name"]).endswith("-00000000000000ab")
    assert found["count"] == found["written"]
    assert found["last"] > 900  # type: ignore[operator]


def test_a_tmpfs_that_fills_up_later_is_no_sigbus(run_in_small_place) -> None:
    found = run_in_small_place(r"""
folder = mount(8)
ring = create_ring(folder, registry, span_id="00000000000000ab", wanted_bytes=4 << 20)
fill(folder)
written = emit(ring, 5)
header, reading = contents(ring.path)
print(json.dumps({"size": ring.path.stat().st_size, "count": header.count, "written": written, "lost": reading.lost}))
""")
    assert found["size"] == 8 * MIB // 8 // 2
    assert found["count"] == found["written"]
    assert found["lost"] > 0  # type: ignore[operator]


def test_room_that_is_gone_before_it_is_taken_gives_a_smaller_ring(run_in_small_place) -> None:
    found = run_in_small_place(r"""
import llmtrace.ring.create as create
folder = mount(2)
(folder / "dataset").write_bytes(bytes((2 << 20) - (150 << 10)))
create.allotment = lambda folder, wanted, share: 1 << 20  # what it was a moment ago
resource.setrlimit(resource.RLIMIT_FSIZE, (150 << 10, 150 << 10))  # the same where nothing can be mounted
ring = create_ring(folder, registry, span_id="00000000000000ab", wanted_bytes=1 << 20)
written = emit(ring, 2)
header, _ = contents(ring.path)
print(json.dumps({"size": ring.path.stat().st_size, "count": header.count, "written": written}))
""")
    assert found["size"] == 128 << 10
    assert found["count"] == found["written"]


def test_no_room_anywhere_is_off_with_one_warning_and_nothing_left_behind(run_in_small_place) -> None:
    found = run_in_small_place(r"""
folder = mount(1)
resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 12, 1 << 12))
rings = [create_ring(folder, registry, span_id="00000000000000ab", wanted_bytes=1 << 20) for _ in range(3)]
open_files = len(os.listdir("/proc/self/fd"))
create_ring(folder, registry, span_id="00000000000000ab", wanted_bytes=1 << 20)
print(json.dumps({
    "rings": rings, "files": [str(p) for p in (*folder.rglob("*.ring"), *registry.iterdir())], "leak": len(os.listdir("/proc/self/fd")) - open_files,
}))
""")
    assert found["rings"] == [None, None, None]
    assert found["files"] == []
    assert found["leak"] == 0
    lines = [line for line in str(found["stderr"]).splitlines() if line]
    assert len(lines) == 1, lines
    assert lines[0].startswith("llmtrace: tracing is off in this process")


def test_no_folder_at_all_gives_a_memory_file(run_in_small_place) -> None:
    found = run_in_small_place(r"""
ring = create_ring(tmpfs / "absent", registry, span_id="00000000000000ab", wanted_bytes=256 << 10)
print(json.dumps({"path": str(ring.path), "rings": len(find_rings(tmpfs / "absent", registry))}))
""")
    assert found["path"] == "None"
    assert found["rings"] == 1


def test_a_neighbour_that_is_stopped_while_it_makes_its_ring_does_not_hold_us_up(run_in_small_place) -> None:
    found = run_in_small_place(r"""
import fcntl
folder = mount(64)
holder = os.open(folder, os.O_RDONLY)
fcntl.flock(holder, fcntl.LOCK_EX)
start = time.monotonic()
ring = create_ring(folder, registry, span_id="00000000000000ab", wanted_bytes=256 << 10)
took = time.monotonic() - start
fcntl.flock(holder, fcntl.LOCK_UN)
print(json.dumps({"took": took, "path": str(ring.path), "then": str(create_ring(folder, registry, span_id="00000000000000ac", wanted_bytes=1 << 20).path)}))
""")
    assert found["took"] < 5  # type: ignore[operator]
    assert found["path"] == "None"
    assert str(found["then"]).endswith(".ring")


def test_a_memory_files_ring_outlives_the_process_for_whoever_opened_it(tmp_path: Path) -> None:
    script = """
import os, sys
from pathlib import Path
from llmtrace.ring import create_ring
ring = create_ring(Path("/absent"), Path(sys.argv[1]), span_id="1", wanted_bytes=1 << 18)
print(flush=True)
sys.stdin.readline()
for n in range(1000):
    ring.append(1, b"%d" % n)
os.kill(os.getpid(), 9)
"""
    process = subprocess.Popen([sys.executable, "-c", script, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdin
    assert process.stdout
    process.stdout.readline()
    [path] = find_rings(Path("/absent"), tmp_path)
    reader = RingReader(path)
    process.stdin.write(b"\n")
    process.stdin.close()
    assert process.wait(20) == -9
    process.stdout.close()
    reading = reader.read(0, 0)
    assert [reading.data[f.start : f.end] for f in reading.frames] == [b"%d" % n for n in range(1000)]
    reader.close()
