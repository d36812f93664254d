"""An import finder that waits for a module: it finds nothing itself, and calls back when the module has been imported.

It imports nothing at all: `importlib.util` alone would cost every Python process 20 ms.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from types import ModuleType

TYPE_CHECKING = False
if TYPE_CHECKING:
    from importlib.machinery import ModuleSpec

Waiting = Callable[[], None]


class Finder:
    """On sys.meta_path while somebody waits. The callbacks run once the module's own code has run, in the importing thread."""

    def __init__(self) -> None:
        self.waiting: dict[str, list[Waiting]] = {}
        self.here: set[str] = set()
        """Modules whose code has run; while we call back, the interpreter itself still counts them as on their way."""

    def find_spec(self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None) -> ModuleSpec | None:
        """The spec that the other finders give, with its loader's `exec_module` extended by the callbacks."""
        if name not in self.waiting:
            return None
        for finder in list(sys.meta_path):
            find = None if finder is self else getattr(finder, "find_spec", None)
            if find is not None and (spec := find(name, path, target)) is not None:
                self._extend(name, spec)
                return spec
        return None

    def _extend(self, name: str, spec: ModuleSpec) -> None:
        loader = spec.loader
        execute = getattr(loader, "exec_module", None)
        if execute is None:
            return

        def exec_module(module: ModuleType) -> None:
            try:
                del loader.exec_module  # type: ignore[union-attr]
            except AttributeError:
                pass
            execute(module)
            self.arrived(name)

        try:
            loader.exec_module = exec_module  # type: ignore[union-attr, method-assign]
        except (AttributeError, TypeError):
            return

    def arrived(self, name: str) -> None:
        """Call those who wait for a module, each once."""
        self.here.add(name)
        for callback in self.waiting.pop(name, []):
            callback()

    def wait(self, name: str, callback: Waiting) -> None:
        self.waiting.setdefault(name, []).append(callback)
        if self not in sys.meta_path:
            sys.meta_path.insert(0, self)

    def forget(self, name: str, callback: Waiting) -> None:
        callbacks = self.waiting.get(name, [])
        if callback in callbacks:
            callbacks.remove(callback)
        if not callbacks:
            self.waiting.pop(name, None)
        if not self.waiting and self in sys.meta_path:
            sys.meta_path.remove(self)


def the_finder() -> Finder:
    """The one that is on sys.meta_path already, else a new one."""
    return next((finder for finder in sys.meta_path if isinstance(finder, Finder)), None) or Finder()


def imported(name: str) -> bool:
    """Whether a module is there and its own code has run."""
    module = sys.modules.get(name)
    spec = getattr(module, "__spec__", None)
    return module is not None and not getattr(spec, "_initializing", False)


def when_imported(name: str, callback: Waiting) -> Callable[[], None]:
    """Call `callback` now if the module has been imported, else right after it is; gives what takes the wish back."""
    finder = the_finder()
    if imported(name) or name in finder.here:
        callback()
        return lambda: None
    finder.wait(name, callback)
    return lambda: finder.forget(name, callback)
