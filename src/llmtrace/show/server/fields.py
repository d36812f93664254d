"""What addresses say, read strictly: ids, times, lengths, languages, words to search for."""

from __future__ import annotations

import re
from datetime import datetime
from typing import Final

import msgspec

from ...incidents import AFTER_NS, BEFORE_NS
from ..page.texts import LANGUAGES
from .answers import Asked, RefusedError

LONGEST_NS: Final = 600_000_000_000
"""A window's bound: 64 ranks emit a million records in it."""
LONGEST_SEARCH: Final = 200

_ID: Final = re.compile(r"[0-9A-Za-z]{1,64}")
_LENGTH: Final = re.compile(r"(\d{1,6})(ms|s|m)?", re.ASCII)
_EPOCH_MS: Final = re.compile(r"\d{13}", re.ASCII)
_EPOCH_NS: Final = re.compile(r"\d{19}", re.ASCII)
_UNITS: Final = {"ms": 10**6, "s": 10**9, "m": 60 * 10**9}


class Stretch(msgspec.Struct, frozen=True, kw_only=True):
    """A window by its address: whose, around which moment (None: the incident's, or the newest), and what to show where that is unknown here."""

    key: str
    at_ns: int | None = None
    before_ns: int = BEFORE_NS
    after_ns: int = AFTER_NS
    instead: Stretch | None = None


def incident_stretch(request: Asked, key: str) -> Stretch:
    """`?before=&after=`; and `?trace=&from=&to=`, as an alert's link has them, for where its incident is not known."""
    before_ns, after_ns = _around(request)
    return Stretch(key=_identifier(key), before_ns=before_ns, after_ns=after_ns, instead=_instead(request))


def trace_stretch(request: Asked, key: str) -> Stretch:
    """`?at=&before=&after=`; without `at` the newest of the trace."""
    before_ns, after_ns = _around(request)
    at = request.query.get("at")
    return Stretch(key=_identifier(key), at_ns=None if at is None else moment_ns("at", at), before_ns=before_ns, after_ns=after_ns)


def _around(request: Asked) -> tuple[int, int]:
    before_ns = length_ns("before", request.query.get("before", "30s"))
    after_ns = length_ns("after", request.query.get("after", "5s"))
    return _bounded(before_ns, after_ns)


def _bounded(before_ns: int, after_ns: int) -> tuple[int, int]:
    if not 0 < before_ns + after_ns <= LONGEST_NS:
        raise RefusedError(400, f"A window is longer than nothing and at most {LONGEST_NS // _UNITS['m']} minutes.")
    return before_ns, after_ns


def _instead(request: Asked) -> Stretch | None:
    given = [request.query.get(name) for name in ("trace", "from", "to")]
    if None in given:
        return None
    trace, start, end = map(str, given)
    start_ns = moment_ns("from", start)
    before_ns, after_ns = _bounded(0, min(moment_ns("to", end) - start_ns, LONGEST_NS))
    return Stretch(key=_identifier(trace), at_ns=start_ns, before_ns=before_ns, after_ns=after_ns)


def _identifier(text: str) -> str:
    if _ID.fullmatch(text) is None:
        raise RefusedError(404, "That is no id: letters and digits, as `llmtrace incidents` and `llmtrace runs` print them.")
    return text


def moment_ns(name: str, text: str) -> int:
    """Milliseconds or nanoseconds since 1970, or an ISO 8601 time with its zone; raises RefusedError for anything else."""
    if _EPOCH_MS.fullmatch(text):
        return int(text) * 10**6
    if _EPOCH_NS.fullmatch(text):
        return int(text)
    try:
        moment = datetime.fromisoformat(text)
        if moment.tzinfo is not None and moment.year >= 1970:
            return round(moment.timestamp() * 10**6) * 1000
    except (ValueError, OverflowError):
        pass
    raise RefusedError(400, f"`{name}` is milliseconds or nanoseconds since 1970, or a time with its zone, as in 2026-11-30T03:14:07Z.")


def length_ns(name: str, text: str) -> int:
    """`30s`, `500ms`, `2m`, or a bare number of seconds; raises RefusedError for anything else."""
    match = _LENGTH.fullmatch(text)
    if match is None:
        raise RefusedError(400, f"`{name}` is a whole number with ms, s or m, as in 30s.")
    return int(match[1]) * _UNITS[match[2] or "s"]


def language_asked(request: Asked) -> str:
    """`?lang=`; empty where it is the browser's to choose. Raises RefusedError for a language that there is none of."""
    asked = request.query.get("lang", "")
    if asked and asked not in LANGUAGES:
        raise RefusedError(400, f"`lang` is one of {', '.join(LANGUAGES)}.")
    return asked


def language_of(request: Asked | None) -> str:
    """The language for a page without a script: asked for, else the first of ours that the browser names, else English."""
    if request is None:
        return LANGUAGES[0]
    named = [part.split(";")[0].strip().lower()[:2] for part in request.headers.get("accept-language", "").split(",")]
    wanted = [request.query.get("lang", ""), *named]
    return next((language for language in wanted if language in LANGUAGES), LANGUAGES[0])


def search_words(request: Asked) -> str:
    return request.query.get("q", "")[:LONGEST_SEARCH].strip()
