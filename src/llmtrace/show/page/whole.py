"""Text that UTF-8 can hold."""

from __future__ import annotations


def whole(text: str) -> str:
    """The text with each lone surrogate replaced by U+FFFD, all else as it is."""
    if text.isascii():
        return text
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text
