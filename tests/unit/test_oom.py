"""Out of memory: told from an exception's text, with the sizes, and from nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from llmtrace.rank.instruments import failures, oom
from llmtrace.record import ERROR, FATAL
from tests.support.recorder import Recorder

CUDA = (
    "CUDA out of memory. Tried to allocate 2.50 GiB. GPU 1 has a total capacity of 79.15 GiB of which 1.25 GiB is free. Process 77 has 77.89 GiB "
    "memory in use. Of the allocated memory 76.50 GiB is allocated by PyTorch, and 512.00 MiB is reserved by PyTorch but unallocated. If reserved but "
    "unallocated memory is large try setting PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True"
)
GIB = 1 << 30


def test_cpu_allocator() -> None:
    text = (
        "[enforce fail at alloc_cpu.cpp:127] err == 0. DefaultCPUAllocator: can't allocate memory: you tried to allocate 1125899906842624 bytes. Error code 12"
    )
    assert oom.read_shortage("RuntimeError", text) == oom.Shortage("cpu", {oom.OOM_SIZE: 1 << 50})


def test_cuda_allocator() -> None:
    found = oom.read_shortage("OutOfMemoryError", CUDA)
    assert found is not None
    assert found.device == "cuda:1"
    assert found.sizes == {
        oom.OOM_SIZE: int(2.5 * GIB),
        oom.OOM_LIMIT: int(79.15 * GIB),
        oom.OOM_FREE: int(1.25 * GIB),
        oom.OOM_ALLOCATED: int(76.5 * GIB),
        oom.OOM_RESERVED: 512 << 20,
    }


@pytest.mark.parametrize(
    ("kind", "text", "device"),
    [
        ("MemoryError", "", "cpu"),
        ("MemoryError", "Unable to allocate 7.28 TiB for an array with shape (1000000, 1000000) and data type float64", "cpu"),
        ("RuntimeError", "CUDA error: out of memory\nCUDA kernel errors might be asynchronously reported", "cuda"),
        ("AcceleratorError", "CUDA error: out of memory", "cuda"),
        ("RuntimeError", "Caught OutOfMemoryError in replica 0 on device 0.\n" + CUDA, "cuda:1"),
        ("RuntimeError", "CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`", "cuda"),
    ],
)
def test_other_words_for_it(kind: str, text: str, device: str) -> None:
    found = oom.read_shortage(kind, text)
    assert found is not None
    assert found.device == device


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("ValueError", "out of range"),
        ("RuntimeError", "mat1 and mat2 shapes cannot be multiplied"),
        ("RuntimeError", "Connection closed by peer"),
        ("KeyError", "memory"),
    ],
)
def test_what_is_about_something_else(kind: str, text: str) -> None:
    assert oom.read_shortage(kind, text) is None


@given(st.text(), st.text())
def test_no_text_breaks_the_parser(kind: str, text: str) -> None:
    oom.read_shortage(kind, text)
    oom.read_shortage("OutOfMemoryError", f"Tried to allocate {text} GiB. Tried to allocate 1.2.3 GiB")


@given(st.integers(1, 1 << 60))
def test_sizes_in_bytes_are_exact(size: int) -> None:
    found = oom.read_shortage("RuntimeError", f"DefaultCPUAllocator: can't allocate memory: you tried to allocate {size} bytes.")
    assert found is not None
    assert found.sizes == {oom.OOM_SIZE: size}


def test_an_allocation_that_fails_is_an_event_before_its_failure() -> None:
    recorder = Recorder()
    recorder.install(oom.instrument)
    with pytest.raises(RuntimeError) as caught:
        torch.empty(1 << 50, dtype=torch.uint8)
    failures.report(recorder.tracer, caught.value, "excepthook")
    found, failure = recorder.records()
    assert (found.name, found.severity, failure.name) == ("llmtrace.oom", FATAL, "llmtrace.failure")
    assert found.attributes["llmtrace.oom.size_bytes"] == 1 << 50
    assert found.attributes["llmtrace.oom.device"] == "cpu"
    assert int(found.attributes["llmtrace.oom.rss_bytes"]) > 1 << 20
    assert int(found.attributes["llmtrace.oom.free_bytes"]) > 1 << 20
    assert str(found.attributes["llmtrace.failure.line"]).startswith(f"{__file__}:")
    recorder.close()


def test_a_wrapped_shortage_is_found_and_a_chain_that_bites_its_tail_ends() -> None:
    inner, outer = MemoryError(), RuntimeError("while collating")
    outer.__cause__ = inner
    assert oom.shortage_of(outer) is not None
    first, second = ValueError("a"), ValueError("b")
    first.__cause__, second.__cause__ = second, first
    assert oom.shortage_of(first) is None


def test_the_devices_own_word_is_an_error_and_no_failure() -> None:
    recorder = Recorder()
    watch = oom.Watch(recorder.tracer)
    watch.on_device(1, 100, 1000, 10)
    (found,) = recorder.records()
    assert (found.name, found.severity, found.attributes["llmtrace.oom.device"]) == ("llmtrace.oom", ERROR, "cuda:1")
    watch.active = False
    watch.on_device(1, 100, 1000, 10)
    assert len(recorder.records()) == 1


def test_the_cgroups_limit_is_the_least_on_the_way_up(tmp_path: Path) -> None:
    root, own = tmp_path / "cgroup", tmp_path / "own"
    (root / "kubepods" / "pod").mkdir(parents=True)
    own.write_text("0::/kubepods/pod\n")
    (root / "kubepods" / "pod" / "memory.max").write_text("max\n")
    assert oom.cgroup_limit(root, str(own)) is None
    (root / "kubepods" / "memory.max").write_text("4096\n")
    (root / "memory.max").write_text("8192\n")
    assert oom.cgroup_limit(root, str(own)) == 4096
    own.write_text("7:cpu,memory:/docker\n1:name=systemd:/x\nnonsense\n")
    (root / "memory" / "docker").mkdir(parents=True)
    (root / "memory" / "docker" / "memory.limit_in_bytes").write_text("2048")
    (root / "memory" / "memory.limit_in_bytes").write_text(str((1 << 63) - 4096))
    assert oom.cgroup_limit(root, str(own)) == 2048
    assert oom.cgroup_limit(root, str(tmp_path / "missing")) is None
