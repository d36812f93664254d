"""A browser is opened where there is a display to see it, and nowhere else; BROWSER names one that only notes what it is told."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from llmtrace.cli.browser import has_display, show

URL = "file:///tmp/a%20b.html"


@pytest.fixture
def told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    script, told = tmp_path / "browser", tmp_path / "told"
    script.write_text(f'#!/bin/sh\nprintf %s "$1" > {told}\n')
    script.chmod(0o755)
    monkeypatch.setenv("BROWSER", str(script))
    for name in ("DISPLAY", "WAYLAND_DISPLAY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("webbrowser._tryorder", None)  # it reads BROWSER once, at its first use in a process
    return told


@pytest.mark.parametrize("name", ["DISPLAY", "WAYLAND_DISPLAY"])
def test_with_a_display_the_page_is_opened(told: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setenv(name, ":0")
    assert show(URL)
    assert told.read_text() == URL


def test_without_one_nothing_is_started(told: Path) -> None:
    assert has_display() == (sys.platform == "darwin")
    assert not show(URL)
    assert not told.exists()
