"""A ring that the first version of format 1 wrote is read by every later one."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import msgspec
import pytest

from llmtrace import frames
from llmtrace.ring import RingReader

GOLDEN = Path(__file__).resolve().parent.parent / "golden"


def expectation() -> list[Any]:
    return [msgspec.json.decode(line) for line in (GOLDEN / "ring-format-1.jsonl").read_bytes().splitlines()]


def subset(expected: object, found: object, where: str = "") -> None:
    """What was known then is there and the same; what later versions add beside it is no matter."""
    if isinstance(expected, dict):
        assert isinstance(found, dict), where
        for name, value in expected.items():
            assert name in found, f"{where}.{name} is gone"
            subset(value, found[name], f"{where}.{name}")
    elif isinstance(expected, list):
        assert isinstance(found, list), where
        assert len(expected) == len(found), where
        for number, (one, other) in enumerate(zip(expected, found, strict=True)):
            subset(one, other, f"{where}[{number}]")
    else:
        assert expected == found, where


@pytest.mark.parametrize("read_only", [False, True])
def test_the_golden_ring_is_read_as_on_its_first_day(tmp_path: Path, read_only: bool) -> None:
    path = tmp_path / "golden.ring"
    shutil.copyfile(GOLDEN / "ring-format-1.bin", path)
    if read_only:
        path.chmod(0o400)
    header, groups, seen, *records = expectation()
    reader = RingReader(path)
    reading = reader.read(0, 0)
    decoder = frames.Decoder(frames.merge_descriptions(reader.descriptions()))
    subset(header, msgspec.to_builtins(reader.header()), "header")
    subset(groups, msgspec.to_builtins(reader.groups()), "groups")
    assert seen == {"tail": reading.tail, "count": reading.count, "lost": reading.lost}
    found = [decoder.record(f.kind, reading.data[f.start : f.end], f.position, 0) for f in reading.frames]
    subset(records, msgspec.to_builtins(found), "records")
    reader.close()


def test_the_golden_ring_holds_what_matters() -> None:
    """The expectation itself: laps, losses, a lap that was padded, late identity, an unknown schema, all facts of the header."""
    header, groups, seen, *records = expectation()
    assert seen["lost"] > 0
    assert header["head"] > 2 * header["capacity"]
    assert (header["cut"], header["ended"], header["step"], header["phase"]) == (1, "raised", 399, 2)
    assert [group["slot"] for group in groups] == [0, 63]
    assert {record["name"] for record in records} == {"llmtrace.step", "llmtrace.log", "llmtrace.from_another_version"}
    assert {record["identity"]["rank"] for record in records} == {3}
    assert len(records) + seen["lost"] == 400
