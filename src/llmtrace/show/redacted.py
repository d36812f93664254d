"""A window without its secrets, for the views that leave the machine: page, report and trace. The terminal and --json show what the journal holds."""

from __future__ import annotations

import msgspec

from ..config import resolve
from ..record import Incident
from ..redact import Redactor, make_redactor
from ..sources.context import Context


def redact_context(context: Context, redactor: Redactor | None = None) -> Context:
    """The context with its records, and its incident's words, redacted; the same object where nothing was found.

    `redactor` is the one that the settings in force ask for unless it is given.
    """
    redactor = redactor or make_redactor(resolve())
    if not redactor.enabled:
        return context
    records = [redactor.redact_record(record) for record in context.records]
    incident = context.incident and _redacted(context.incident, redactor)
    if incident is context.incident and all(new is old for new, old in zip(records, context.records, strict=True)):
        return context
    return msgspec.structs.replace(context, records=records, incident=incident)


def _redacted(incident: Incident, redactor: Redactor) -> Incident:
    links = {name: link and redactor.redact(link) for name, link in incident.links.items()}
    summary, reason = redactor.redact(incident.summary), redactor.redact(incident.reason)
    if (summary, reason, links) == (incident.summary, incident.reason, incident.links):
        return incident
    return msgspec.structs.replace(incident, summary=summary, reason=reason, links=links)
