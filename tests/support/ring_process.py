"""A small process with a ring of its own that does as it is told, one command a line on stdin, one answer a line on stdout.

Stands for a rank (or, forked, a worker) where the agent is tested: it writes through the real ring and dies real deaths.
"""

from __future__ import annotations

import ctypes
import faulthandler
import os
import signal
import sys
import time

import msgspec

from llmtrace import frames, names
from llmtrace.clock import process_start_ticks
from llmtrace.config import resolve
from llmtrace.directory import choose
from llmtrace.identity import new_span_id
from llmtrace.record import Identity
from llmtrace.ring import RingWriter, create_ring

LOG = 2
STEP = 3


class RingProcess:
    def __init__(self, identity: Identity, parent_span: str = "", described: bool = True) -> None:
        directory = choose(resolve())
        assert directory is not None
        self.directory = directory
        span_id = new_span_id()
        self.identity = msgspec.structs.replace(identity, span_id=span_id, parent_span_id=parent_span, pid=os.getpid())
        made = create_ring(directory.rings, directory.registry, span_id=span_id, wanted_bytes=256 << 10 if parent_span else 4 << 20, parent_span=parent_span)
        assert made is not None
        self.ring: RingWriter = made
        self.lines = 0
        self.at: int | None = None
        if described:
            made.describe(frames.encode_description(frames.known_schemas()))
            made.describe(frames.encode_description(frames.Description(epochs=[frames.Epoch(0, self.identity)], phases={1: "forward"})))

    def log(self, count: str, per_second: str = "0", severity: str = "9") -> str:
        """`count` numbered lines, as fast as possible or at a steady rate."""
        begin = time.monotonic()
        for number in range(int(count)):
            self.ring.append(LOG, frames.encode([time.monotonic_ns(), int(severity), f"line {self.lines}", None, "train", "a.py", 1, "MainThread", None]))
            self.lines += 1
            if float(per_second):
                time.sleep(max(0.0, begin + (number + 1) / float(per_second) - time.monotonic()))
        return str(self.lines)

    def step(self, number: str) -> str:
        self.at = int(number)
        self.ring.progress(self.at, 1)
        self.ring.append(STEP, frames.encode([time.monotonic_ns(), 1000, int(number)]))
        return number

    def fail(self, kind: str, *message: str) -> str:
        """A llmtrace.failure as the excepthook tells it; the process goes on until it is told otherwise."""
        text = " ".join(message)
        attributes = {names.EXCEPTION_TYPE: kind, names.EXCEPTION_MESSAGE: text}
        now_ns = time.monotonic_ns()
        self.ring.append(1, frames.encode([now_ns, names.FAILURE, "event", 21, f"{kind}: {text}", self.at, None, None, None, attributes]))
        return str(time.time_ns())

    def end(self, how: str) -> str:
        self.ring.end("clean" if how == "clean" else "raised")
        return how

    def leave(self, code: str) -> str:
        os._exit(int(code))

    def sleep(self, seconds: str) -> str:
        time.sleep(float(seconds))
        return seconds

    def kill(self, number: str = "9") -> str:
        signal.signal(int(number), signal.SIG_DFL) if int(number) != 9 else None
        os.kill(os.getpid(), int(number))
        time.sleep(10)
        return ""

    def fatal(self) -> str:
        """A segmentation fault with faulthandler enabled as the rank's failures instrument does it."""
        pid = os.getpid()
        file = (self.directory.rings / f"{pid}-{process_start_ticks(pid)}-{self.ring.span_id}.fatal").open("w")  # open to the end: the handler writes to it
        faulthandler.enable(file, all_threads=True)
        ctypes.string_at(0)
        return ""

    def again(self) -> str:
        """A second ring of the same process, as after stop and start; the first one has said that it is over."""
        self.ring.end("clean")
        self.ring.close()
        fresh = RingProcess(self.identity)
        self.ring, self.identity = fresh.ring, fresh.identity
        return self.ring.span_id

    def worker(self, *end: str) -> str:
        """Fork a child that logs three lines in a ring of its own and ends as told; nobody waits for it. Its pid and span."""
        read, write = os.pipe()
        if pid := os.fork():
            return f"{pid} {os.read(read, 100).decode()}"
        worker = RingProcess(msgspec.structs.replace(self.identity, role="worker"), self.ring.span_id)
        worker.log("3")
        os.write(write, worker.ring.span_id.encode())
        getattr(worker, end[0])(*end[1:])
        os._exit(0)


def main() -> None:
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    process = RingProcess(msgspec.json.decode(sys.argv[1], type=Identity), described=sys.argv[2:] != ["undescribed"])
    print(process.ring.span_id, flush=True)
    for line in sys.stdin:
        command, *arguments = line.split()
        print(getattr(process, command)(*arguments), flush=True)


if __name__ == "__main__":
    main()
