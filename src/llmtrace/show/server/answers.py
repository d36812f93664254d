"""What is asked of the server and what it answers, apart from sockets."""

from __future__ import annotations

import gzip
from collections.abc import Mapping
from typing import Final
from urllib.parse import parse_qsl, unquote

import msgspec

HTML, JSON, MARKDOWN, TEXT = "text/html; charset=utf-8", "application/json", "text/markdown; charset=utf-8", "text/plain; charset=utf-8"
MOST_FIELDS: Final = 20
PACKED_FROM: Final = 1024
LEVEL: Final = 5
"""gzip: a page shrinks to a fifth, at 50 MB/s."""


class RefusedError(Exception):
    """An answer that says no: its HTTP status and one sentence for people."""

    def __init__(self, status: int, sentence: str, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(sentence)
        self.status, self.sentence, self.headers = status, sentence, dict(headers or {})


class Asked(msgspec.Struct, frozen=True, kw_only=True):
    """A request: the parts of its path and the fields of its query, decoded; headers by lower-case name."""

    parts: tuple[str, ...]
    query: dict[str, str]
    headers: dict[str, str]


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """`packed` is the body as gzip, empty where it is not worth it or not made yet."""

    status: int = 200
    kind: str = HTML
    body: bytes = b""
    packed: bytes = b""
    headers: dict[str, str] = {}


def packed(answer: Answer) -> Answer:
    """The answer with its body compressed as well, so that it is done once for all who are given it."""
    if len(answer.body) < PACKED_FROM:
        return answer
    return msgspec.structs.replace(answer, packed=gzip.compress(answer.body, LEVEL, mtime=0))


def asked(target: str, headers: Mapping[str, str]) -> Asked:
    """The request of that target (`/path?query`); raises RefusedError for one that is not well formed, or names a field twice."""
    path, _, query = target.partition("?")
    if not path.startswith("/") or not target.isascii() or not target.isprintable():
        raise RefusedError(400, "The request's target is no path.")
    try:
        parts = tuple(unquote(part, errors="strict") for part in path[1:].split("/"))
        fields = parse_qsl(query, keep_blank_values=True, errors="strict", max_num_fields=MOST_FIELDS)
    except ValueError:
        raise RefusedError(400, "The request's target is not UTF-8, or has too many fields.") from None
    if len({name for name, _ in fields}) < len(fields):
        raise RefusedError(400, "The request names a field twice.")
    return Asked(parts=parts, query=dict(fields), headers={name.lower(): value for name, value in headers.items()})
