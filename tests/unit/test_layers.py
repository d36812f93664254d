"""The boundaries between the parts of llmtrace: import-linter's contracts, and what it cannot express."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SOURCE = ROOT / "src" / "llmtrace"
FILES = sorted(SOURCE.rglob("*.py"))
TRAINING = {"torch", "lightning", "pytorch_lightning", "lightning_fabric"}
HEAVY = {"sqlite3", "typer", "rich", "psutil", "importlib.metadata", "asyncio", "requests"}
IN_A_RANK = ("rank", "bootstrap", "ring")
FAMILIES = ("rank/instruments", "agent/probes", "agent/sinks")
STORES = ("journal", "bundle", "loki", "elasticsearch")


def module_of(path: Path) -> str:
    parts = path.relative_to(SOURCE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imports(path: Path, body: ast.AST | None = None, *, inside: bool = True) -> Iterator[tuple[str, int]]:
    """Absolute names that a file imports, with their lines; without `inside` only those that run when the module is imported."""
    for node in ast.iter_child_nodes(body or ast.parse(path.read_text())):
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            continue
        if isinstance(node, ast.Import):
            yield from ((name.name, node.lineno) for name in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = absolute(path, node)
            yield from ((f"{base}.{name.name}", node.lineno) for name in node.names)
        elif inside or not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
            yield from imports(path, node, inside=inside)


def absolute(path: Path, node: ast.ImportFrom) -> str:
    if not node.level:
        return node.module or ""
    package = module_of(path).split(".")
    if path.name != "__init__.py":
        package = package[:-1]
    kept = package[: len(package) - node.level + 1]
    return ".".join([*kept, *([node.module] if node.module else [])])


def within(name: str, packages: set[str]) -> bool:
    return any(name == package or name.startswith(f"{package}.") for package in packages)


def test_the_contracts_of_import_linter_hold() -> None:
    done = subprocess.run([Path(sys.executable).parent / "lint-imports", "--no-cache"], cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "0 broken" in done.stdout


def test_torch_and_lightning_are_imported_in_rank_and_bootstrap_only_and_only_inside_functions() -> None:
    anywhere = [
        f"{path}:{line}"
        for path in FILES
        if path.relative_to(SOURCE).parts[0] not in ("rank", "bootstrap")
        for name, line in imports(path)
        if within(name, TRAINING)
    ]
    assert anywhere == []
    early = [f"{path}:{line}" for path in FILES for name, line in imports(path, inside=False) if within(name, TRAINING)]
    assert early == []


def test_what_a_rank_loads_imports_nothing_heavy() -> None:
    files = [path for path in FILES if path.relative_to(SOURCE).parts[0] in IN_A_RANK or path.parent == SOURCE]
    found = [f"{path}:{line} {name}" for path in files for name, line in imports(path, inside=False) if within(name, HEAVY)]
    assert found == []


@pytest.mark.parametrize("family", FAMILIES)
def test_members_of_a_family_do_not_import_each_other(family: str) -> None:
    members = {module_of(path): path for path in (SOURCE / family).glob("*.py") if path.name != "__init__.py" and not path.name.startswith("_")}
    found = [f"{path}:{line} {name}" for own, path in members.items() for name, line in imports(path) if within(name, set(members) - {own})]
    assert found == []


def test_sources_of_stores_do_not_import_each_other() -> None:
    stores = {f"llmtrace.sources.{store}": SOURCE / "sources" / f"{store}.py" for store in STORES}
    found = [f"{path}:{line} {name}" for own, path in stores.items() if path.exists() for name, line in imports(path) if within(name, set(stores) - {own})]
    assert found == []


def test_files_stay_under_400_lines() -> None:
    long = {str(path): count for path in FILES if (count := len(path.read_text().splitlines())) >= 400}
    assert long == {}


def test_functions_are_short() -> None:
    """Median 8 lines, 95th percentile 35 (docstrings included)."""
    lengths = sorted(
        (node.end_lineno or 0) - node.lineno + 1
        for path in FILES
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
    )
    assert lengths[len(lengths) // 2] <= 8
    assert lengths[len(lengths) * 95 // 100] <= 35


def test_the_checker_of_imports_sees_what_it_must(tmp_path: Path) -> None:
    """A test that cannot fail is none: the helper finds nested, relative and aliased imports, and skips those for types."""
    path = SOURCE / "rank" / "instruments" / "made_up.py"
    text = """
from __future__ import annotations
if TYPE_CHECKING:
    import torch
from . import failures
from ..steps import Steps
def f():
    import torch.distributed as d
"""
    seen = dict(imports(path, ast.parse(text)))
    assert seen == {"__future__.annotations": 2, "llmtrace.rank.instruments.failures": 5, "llmtrace.rank.steps.Steps": 6, "torch.distributed": 8}
    assert "torch.distributed" not in dict(imports(path, ast.parse(text), inside=False))
