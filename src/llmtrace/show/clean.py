"""Text from training jobs made harmless: whatever a line holds, a terminal only ever gets printable characters of it."""

from __future__ import annotations

import re
from typing import Final

_ESCAPES: Final = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\-_])")
"""ECMA-48 control sequences and operating system commands: colours, cursor moves, window titles. They say nothing here."""

_CONTROLS: Final = re.compile(
    "[\x00-\x09\x0b-\x1f\x7f-\x9f\xad\u061c\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb\ud800-\udfff\U000e0000-\U000e007f]"
)
"""Everything else that moves, hides or reorders text (CVE-2021-42574 for the bidirectional ones), and lone surrogates."""


SLACK: Final = 30


def clean(text: str) -> str:
    """The text without escape sequences, with control characters spelled out (`\\x00`); newlines stay, a tab is four blanks."""
    if text.isascii() and text.isprintable():
        return text
    return _CONTROLS.sub(_spell, _ESCAPES.sub("", text).replace("\r\n", "\n").expandtabs(4)).rstrip("\n")


def one_line(text: str) -> str:
    """The same on one line: newlines become ` | `."""
    return " | ".join(part.rstrip() for part in clean(text).split("\n"))


def cut(text: str, length: int) -> str:
    """About `length` characters at most, saying how many more there are."""
    return text if len(text) <= length + SLACK else f"{text[:length]} [{len(text) - length:,} more characters]"


def _spell(match: re.Match[str]) -> str:
    code = ord(match[0])
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
