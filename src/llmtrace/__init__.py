"""One trace id for a training job; when it breaks, the thirty seconds before, from every rank.

The names below are all there is to import. Each is loaded when it is first used, so that `import llmtrace` costs a process
that does not train next to nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .rank.lightning import LLMTraceCallback
    from .rank.runtime import start, stop
    from .rank.trace import current, event, phase, steps, trace

__all__ = ["LLMTraceCallback", "current", "event", "phase", "start", "steps", "stop", "trace"]

_HOMES = {
    "LLMTraceCallback": "lightning",
    "start": "runtime",
    "stop": "runtime",
    "trace": "trace",
    "steps": "trace",
    "phase": "trace",
    "event": "trace",
    "current": "trace",
}


def __getattr__(name: str) -> object:
    if name == "__version__":
        from importlib.metadata import version

        return version("llmtrace")
    if name not in _HOMES:
        raise AttributeError(f"module 'llmtrace' has no attribute {name!r}")
    from importlib import import_module

    found = globals()[name] = getattr(import_module(f".rank.{_HOMES[name]}", __name__), name)
    return found


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
