"""OpenTelemetry: the rank's span is the current span context of the process that uses it, so that its own spans hang under the rank's.

Nothing is exported and no provider is set: a NonRecordingSpan with our ids is attached, as a remote parent would be. A span of the
user's that is current already stays. Installed where the program imports opentelemetry.trace itself.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, Final

from ..instrument import Requirement, Undo

if TYPE_CHECKING:
    from ...record import Identity
    from ..tracer import Tracer


class CurrentSpan:
    """Attached once the trace id is known, in the thread that learns it: the one that trains. Ids learned anew are attached anew."""

    def __init__(self, modules: dict[str, Any]) -> None:
        self._trace, self._context = modules["opentelemetry.trace"], modules["opentelemetry.context"]
        self._span: Any = None
        self._token: Any = None

    def follow(self, identity: Identity) -> None:
        current = self._trace.get_current_span()
        if not identity.trace_id or (current is not self._span and current.get_span_context().is_valid):
            return
        self.detach()
        ids = self._trace.SpanContext(
            int(identity.trace_id, 16), int(identity.span_id, 16), is_remote=True, trace_flags=self._trace.TraceFlags(self._trace.TraceFlags.SAMPLED)
        )
        self._span = self._trace.NonRecordingSpan(ids)
        self._token = self._context.attach(self._trace.set_span_in_context(self._span))

    def detach(self) -> None:
        """Take it back where it still is the current one; under a span of the user's it stays, and ends with their context."""
        if self._token is not None and self._trace.get_current_span() is self._span:
            self._context.detach(self._token)
        self._token = self._span = None


class OpenTelemetry:
    """Follows the identity."""

    name: Final = "opentelemetry"
    requires: Final = Requirement("opentelemetry.trace")

    def install(self, tracer: Tracer) -> Undo:
        current = CurrentSpan(sys.modules)
        current.follow(tracer.identity)
        stop = tracer.subscribe("identity", current.follow)

        def undo() -> None:
            stop()
            current.detach()

        return undo


instrument: Final = OpenTelemetry()
