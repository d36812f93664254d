"""Writes docs/reference/ from the code: `make reference`. A test holds the pages against what this would write today."""

from __future__ import annotations

import ast
import inspect
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import llmtrace
from llmtrace import config, names, record

HERE = Path(__file__).resolve().parent / "reference"
NOTE = "<!-- Written by docs/generate.py from the code; change it there and run `make reference`. -->\n"

ORDER = """An argument of `start`, `LLMTraceCallback` or `@trace` beats the environment, that beats `llmtrace.toml` in the working directory, that the
default. A wrong argument raises `ValueError`; a wrong variable or file entry warns once and the next source counts. `llmtrace doctor` prints
each value and where it came from.
"""
EXITS = """Exit status: 0, or 1 with one line that says what there is where something asked for is not there, or 2 on bad usage.
"""


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "".join(f"| {' | '.join(cell.replace('|', chr(92) + '|').replace(chr(10), ' ') for cell in line)} |\n" for line in lines)


def code(text: object) -> str:
    return f"`{text}`" if str(text) else ""


def constants(module: ModuleType) -> Iterator[tuple[str, str, str]]:
    """(name, text value, what the string below it says) of each constant of a module, in order."""
    body = ast.parse(inspect.getsource(module)).body
    for node, after in zip(body, [*body[1:], None], strict=True):
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and isinstance(getattr(module, node.target.id, None), str):
            yield node.target.id, str(getattr(module, node.target.id)), docstring(after)


def docstring(node: ast.stmt | None) -> str:
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
        return " ".join(node.value.value.split())
    return ""


def paragraph(thing: object) -> str:
    """A docstring as Markdown: lines of one paragraph joined; what is set in columns stays as it is."""
    parts = (inspect.getdoc(thing) or "").split("\n\n")
    return "\n\n".join(f"```text\n{part}\n```" if "  " in part else " ".join(part.split()) for part in parts)


def fields(struct: type) -> str:
    rows = [(code(name), code(annotation), default(struct, name)) for name, annotation in struct.__annotations__.items()]
    return table(("field", "type", "default"), rows)


def default(struct: type, name: str) -> str:
    import msgspec

    found = next(field for field in msgspec.structs.fields(struct) if field.name == name)
    if found.default is not msgspec.NODEFAULT:
        return code(repr(found.default))
    return "" if found.default_factory is msgspec.NODEFAULT else code(f"{getattr(found.default_factory, '__name__', '')}()")


def records_page() -> str:
    parts = [NOTE, "# Records\n", paragraph(record) + "\n"]
    for struct in (record.Record, record.Identity, record.Process, record.Run, record.Incident, record.Culprit, record.Window):
        parts += [f"## {struct.__name__}\n", paragraph(struct) + "\n", fields(struct)]
    parts += [
        "## Severities\n",
        "OpenTelemetry's numbers.\n",
        table(("name", "number"), [(code(n), str(getattr(record, n))) for n in ("DEBUG", "INFO", "WARN", "ERROR", "FATAL")]),
    ]
    return "\n".join(parts)


def names_page() -> str:
    found = list(constants(names))
    parts = [NOTE, "# Names\n", paragraph(names) + "\n", "## Records and attributes\n", "Units are in the name: `_ns` nanoseconds, `_bytes` bytes.\n"]
    parts.append(table(("name", "in names.py", "meaning"), [(code(value), code(name), says) for name, value, says in found]))
    parts += ["## Phases of a step\n", ", ".join(code(names.phase_attribute(p)) for p in names.PHASES) + "; `llmtrace.phase(name)` may name others.\n"]
    parts += ["## Hot records, by position\n", "After the time, one value a field. A field of `Record` goes there, any other is an attribute of that name.\n"]
    parts.append(table(("id", "name", "kind", "fields"), [(str(s.id), code(s.name), s.kind, ", ".join(map(code, s.fields))) for s in names.SCHEMAS]))
    return "\n".join(parts)


def settings_page() -> str:
    parts = [NOTE, "# Settings\n", ORDER]
    rows = [(code(s.name), ", ".join(map(code, s.variables)), code(repr(s.default)), s.doc) for s in config.SETTINGS]
    return "\n".join([*parts, table(("argument", "variable", "default", "meaning"), rows)])


def python_page() -> str:
    parts = [NOTE, "# Python\n", "All there is to import from `llmtrace`. Each is safe, and does nothing, when tracing is off.\n"]
    for name in llmtrace.__all__:
        thing = getattr(llmtrace, name)
        parts += [f"## llmtrace.{name}\n", f"```text\n{name}{signature(thing)}\n```\n", paragraph(thing) + "\n"]
    return "\n".join(parts)


def signature(thing: Callable[..., object]) -> str:
    try:
        return str(inspect.signature(thing)).replace("'", "")
    except (TypeError, ValueError):
        return "(...)"


def commands_page() -> str:
    from typer.main import get_command

    from llmtrace.cli.main import app

    parts = [NOTE, "# Commands\n", EXITS]
    group = get_command(app)
    for name, command in getattr(group, "commands", {}).items():
        rows = [(code(invocation(p)), "" if p.default in (None, False, ()) else code(p.default), getattr(p, "help", None) or "") for p in command.params]
        parts += [f"## llmtrace {name}\n", " ".join((command.help or "").split()) + "\n"]
        parts += [table(("option or argument", "default", "meaning"), rows)] if rows else []
    return "\n".join(parts)


def invocation(parameter: Any) -> str:
    """`--dir DIR` of an option, `FILE` of an argument; click's types say too little to check this strictly."""
    if parameter.param_type_name == "argument":
        return str(parameter.metavar or parameter.name.upper())
    value = "" if parameter.is_flag else f" {parameter.metavar or parameter.type.name.upper()}"
    return ", ".join(parameter.opts) + value


def instruments_page() -> str:
    from llmtrace.rank import instruments

    parts = [
        NOTE,
        "# Instruments\n",
        "What records in a training process, one file each in `llmtrace/rank/instruments/`. `LLMTRACE_DISABLE=name,name` leaves some out.\n",
    ]
    for path in sorted(Path(next(iter(instruments.__path__))).glob("*.py")):
        if path.stem.startswith("_"):
            continue
        module = import_module(f"{instruments.__name__}.{path.stem}")
        parts += [f"## {module.instrument.name}\n", paragraph(module) + "\n"]
    return "\n".join(parts)


PAGES: dict[str, Callable[[], str]] = {
    "records.md": records_page,
    "names.md": names_page,
    "settings.md": settings_page,
    "python.md": python_page,
    "commands.md": commands_page,
    "instruments.md": instruments_page,
}


def main() -> int:
    HERE.mkdir(exist_ok=True)
    for name, render in PAGES.items():
        (HERE / name).write_text(render())
    return 0


if __name__ == "__main__":
    sys.exit(main())
