"""Finding the instruments and installing each once its module is there."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

from ..bootstrap.finder import when_imported
from ..guard import guard, shield
from .instrument import Instrument, Requirement, Undo
from .tracer import Tracer

GROUP = "llmtrace.instruments"
FOLDER = Path(__file__).parent / "instruments"


def own_instruments() -> list[str]:
    """The modules of ours, by the files in the folder: adding an instrument is adding a file."""
    return sorted(f"{__package__}.instruments.{entry[:-3]}" for entry in os.listdir(FOLDER) if entry.endswith(".py") and not entry.startswith("_"))


def foreign_instruments() -> list[str]:
    """Modules that installed packages name in the entry-point group llmtrace.instruments. After `import torch` reading them takes 3 ms."""
    with shield("entry points of instruments"):
        from importlib.metadata import entry_points  # torch has imported it; alone it costs 20 ms

        return [entry.value for entry in entry_points(group=GROUP)]
    return []


def found_instruments(disabled: tuple[str, ...]) -> Iterator[Instrument]:
    """Every instrument that is not disabled; one that cannot be imported is counted and left out."""
    for module in [*own_instruments(), *foreign_instruments()]:
        if module.rpartition(".")[2] in disabled:
            continue
        with shield(f"instrument {module}"):
            instrument: Instrument = import_module(module).instrument
            if instrument.name not in disabled:
                yield instrument


def install_all(tracer: Tracer) -> Undo:
    """Install the instruments of this process, now or when their module is imported; gives what undoes them all."""
    undos: list[Undo] = []
    for instrument in found_instruments(tracer.config.disable):
        undos.append(_install_when_ready(instrument, tracer, undos))

    def undo_all() -> None:
        while undos:
            with shield("undo of an instrument"):
                undos.pop()()

    return undo_all


def _install_when_ready(instrument: Instrument, tracer: Tracer, undos: list[Undo]) -> Undo:
    def install() -> None:
        with shield(f"instrument {instrument.name}"):
            if instrument.requires is None or fits(instrument.name, instrument.requires):
                undos.append(instrument.install(tracer))

    if instrument.requires is None:
        install()
        return _nothing
    return when_imported(instrument.requires.module, install)


def _nothing() -> None:
    return None


def fits(name: str, requirement: Requirement) -> bool:
    """Whether the imported module's version is in range; says once where it is not. A module without a version fits."""
    top = sys.modules.get(requirement.module.partition(".")[0])
    version = str(getattr(top, "__version__", ""))
    if not version:
        return True
    if _numbers(requirement.minimum) <= _numbers(version) and (not requirement.maximum or _numbers(version) < _numbers(requirement.maximum)):
        return True
    bounds = f">={requirement.minimum}" + (f",<{requirement.maximum}" if requirement.maximum else "")
    guard.warn(f"instrument {name} is left out: it needs {requirement.module}{bounds}, here is {version}")
    return False


def _numbers(version: str) -> tuple[int, ...]:
    found: list[int] = []
    for part in version.partition("+")[0].split("."):
        if not part.isdecimal():
            break
        found.append(int(part))
    return tuple(found)
