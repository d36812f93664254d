"""docs/explanation/inside-your-process.md names every patch that the code makes: found in the syntax tree, not remembered."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "explanation" / "inside-your-process.md").read_text()
FILES = [path for part in ("rank", "bootstrap") for path in sorted((ROOT / "src" / "llmtrace" / part).rglob("*.py"))]


def nodes() -> Iterator[ast.AST]:
    for path in FILES:
        yield from ast.walk(ast.parse(path.read_text()))


def seams() -> list[tuple[str, str]]:
    """(module, path) of every Seam that is made; a module that is no literal counts as empty."""
    made = [node for node in nodes() if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "Seam"]
    return [tuple(str(arg.value) if isinstance(arg, ast.Constant) else "" for arg in node.args[:2]) for node in made]  # type: ignore[misc]


def assigned_attributes() -> set[str]:
    """`module.attribute` of every assignment to an attribute of something that is neither self nor a local of ours."""
    targets = [target for node in nodes() if isinstance(node, ast.Assign) for target in node.targets]
    flat = [element for target in targets for element in (target.elts if isinstance(target, ast.Tuple) else [target])]
    return {
        ast.unparse(target)
        for target in flat
        if isinstance(target, ast.Attribute) and ast.unparse(target).split(".")[0] in ("sys", "threading", "logging", "os", "torch", "structlog", "warnings")
    }


def test_every_seam_is_named() -> None:
    found = seams()
    assert len(found) >= 5
    assert [seam for seam in found if f"{seam[0]}.{seam[1]}".strip(".") not in PAGE] == []


def test_every_patched_attribute_of_another_module_is_named() -> None:
    found = assigned_attributes()
    assert "sys.excepthook" in found
    assert [name for name in found if name not in PAGE] == []


def test_every_patch_that_an_instrument_confesses_to_is_named() -> None:
    patched = [
        name
        for path in FILES
        for found in re.findall(r"^Patches ([^.:]*(?:\.\w[^:]*?)?)[,:]", ast.get_docstring(ast.parse(path.read_text())) or "", re.MULTILINE)
        for name in re.findall(r"`([\w.]+)`", found)
    ]
    assert {"logging.Logger.callHandlers", "BoundLoggerBase._process_event"} <= set(patched)
    assert [name for name in patched if name not in PAGE] == []


def test_every_instrument_that_can_be_left_out_is_named_in_the_reference() -> None:
    reference = (ROOT / "docs" / "reference" / "instruments.md").read_text()
    names = [path.stem for path in (ROOT / "src" / "llmtrace" / "rank" / "instruments").glob("*.py") if not path.stem.startswith("_")]
    assert [name for name in names if f"## {name}\n" not in reference] == []


def test_every_file_in_the_directory_is_named() -> None:
    from llmtrace import directory
    from llmtrace.config import resolve

    assert directory.JOURNAL_NAME in PAGE
    assert resolve({}, {}, "").ring_dir in PAGE
    assert all(name in PAGE for name in ("agent.lock", "agent.log", "agent.log.1", ".ring", ".fatal", ".damaged"))
