"""What each address answers: lists, pages, the data behind a page, reports."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from typing import Final

import msgspec

from ...config import resolve
from ...incidents import AFTER_NS
from ...journal import JournalError
from ...record import Incident
from ...redact import make_redactor
from ...sources.base import Source
from ...sources.context import Context, context
from ...sources.runs import runs
from ..markdown import report
from ..page.content import content
from ..page.document import data, document
from ..page.model import Page
from ..perfetto import trace_json
from .answers import JSON, MARKDOWN, TEXT, Answer, Asked, RefusedError
from .fields import LONGEST_NS, Stretch, incident_stretch, language_asked, language_of, search_words, trace_stretch
from .lists import front_page, page_answer, refusal_page
from .recent import Recent
from .security import Access

RENDERS: Final = 2
"""Made at the same time: each may need some hundred megabytes for a moment."""
PATIENCE_S: Final = 20.0
"""How long a request waits for its turn."""
PAGE: Final = ""
"""What follows an id in the address of a page; files have names."""

Opened = Callable[[], Source]
"""Opens what is read; raises LookupError where there is nothing yet, JournalError where it cannot be read."""


class Site:
    """All addresses over one set of journals. `options` is what the commands on a page need to find the same ones."""

    def __init__(self, opened: Opened, access: Access, options: str = "") -> None:
        self._opened, self._access, self._options = opened, access, options
        self._turns = threading.BoundedSemaphore(RENDERS)
        self._recent = Recent(PATIENCE_S)
        self._files: dict[str, Callable[[Context, Asked], Answer]] = {
            PAGE: self._page,
            "data.json": self._data,
            "report.md": self._report,
            "perfetto.json": self._perfetto,
        }

    def reply(self, request: Asked) -> Answer:
        """Raises RefusedError for what cannot be answered."""
        if request.parts == ("healthz",):
            return Answer(kind=TEXT, body=b"ok\n")
        if (instead := self._access.check(request)) is not None:
            return instead
        asked_for = (request.parts, *sorted(request.query.items()), language_of(request))
        return self._recent.get(asked_for, lambda: self._route(request))

    def _route(self, request: Asked) -> Answer:
        match request.parts:
            case ("",):
                return self._front(request)
            case ("incident", key, *rest):
                return self._of(request, incident_stretch(request, key), rest)
            case ("trace", key, *rest):
                return self._of(request, trace_stretch(request, key), rest)
            case _:
                raise nowhere()

    def refuse(self, refusal: RefusedError, request: Asked | None) -> Answer:
        """A page that says no and leads back; whoever may not read is told the first alone."""
        way_home = home(request) if request is not None and refusal.status not in (401, 403) else None
        as_json = request is not None and request.parts[-1].endswith(".json")
        return refusal_page(refusal, language_of(request), way_home, as_json)

    def _front(self, request: Asked) -> Answer:
        with self._turn():
            try:
                source = self._opened()
            except LookupError:  # nothing has been traced yet, and that is no error
                incidents, ran = [], []
            else:
                with closed(source):
                    incidents, ran = source.incidents(), runs(source)
        return page_answer(front_page(redacted(incidents), ran, search_words(request), language_of(request), time.time_ns()))

    def _of(self, request: Asked, stretch: Stretch, rest: list[str]) -> Answer:
        """The page of a window, or one of its files."""
        if len(rest) > 1 or rest == [PAGE] or (name := rest[0] if rest else PAGE) not in self._files:
            raise nowhere()
        language_asked(request)
        with self._turn():
            try:
                with closed(self._opened()) as source:
                    found = window(source, stretch)
            except LookupError as error:
                raise RefusedError(404, f"{error.args[0] if error.args else error}.") from None
            return self._files[name](found, request)

    @contextmanager
    def _turn(self) -> Generator[None]:
        if not self._turns.acquire(timeout=PATIENCE_S):
            raise RefusedError(503, "Too many pages are being made at this moment.", {"Retry-After": "5"})
        try:
            yield
        except JournalError as error:
            raise RefusedError(503, f"The journal cannot be read: {error}.") from error
        finally:
            self._turns.release()

    def _content(self, found: Context, request: Asked) -> Page:
        return content(found, language=language_asked(request), options=self._options, now_ns=time.time_ns())

    def _page(self, found: Context, request: Asked) -> Answer:
        return page_answer(document(self._content(found, request), live=True))

    def _data(self, found: Context, request: Asked) -> Answer:
        return Answer(kind=JSON, body=data(self._content(found, request)).encode())

    def _report(self, found: Context, request: Asked) -> Answer:
        return Answer(kind=MARKDOWN, body=report(found, options=self._options, now_ns=time.time_ns()).encode(errors="replace"))

    def _perfetto(self, found: Context, request: Asked) -> Answer:
        headers = {"Content-Disposition": f'attachment; filename="{request.parts[1]}.perfetto.json"'}
        return Answer(kind=JSON, body=trace_json(found), headers=headers)


@contextmanager
def closed(source: Source) -> Generator[Source]:
    """The journals are open for one request: one that was set aside, or is new, is seen at the next."""
    try:
        yield source
    finally:
        source.close()


def window(source: Source, stretch: Stretch) -> Context:
    """What is asked for; of an incident that was found late no more than may be shown at a time. Raises LookupError."""
    incident = next((i for i in source.incidents() if stretch.key in (i.id, *i.merged)), None)
    if incident is None and stretch.instead is not None:
        return window(source, stretch.instead)
    at_ns, after_ns = stretch.at_ns, stretch.after_ns
    if incident is not None and at_ns is None and span_ns(incident, stretch) > LONGEST_NS:
        at_ns, after_ns = incident.onset_ns, LONGEST_NS - stretch.before_ns
    return context(source, stretch.key, at_ns=at_ns, before_ns=stretch.before_ns, after_ns=after_ns)


def span_ns(incident: Incident, stretch: Stretch) -> int:
    return stretch.before_ns + (incident.window.end_ns - AFTER_NS - incident.onset_ns) + stretch.after_ns


def redacted(incidents: Sequence[Incident]) -> list[Incident]:
    """Before they are searched: what is not shown is not found either, letter by letter."""
    redactor = make_redactor(resolve())
    return [msgspec.structs.replace(incident, summary=redactor.redact(incident.summary)) for incident in incidents]


def nowhere() -> RefusedError:
    return RefusedError(404, "There is nothing at this address: / lists what there is.")


def home(request: Asked) -> str:
    """The way to the front page, whatever path a proxy has put before ours."""
    return "../" * (len(request.parts) - 1) or "./"
