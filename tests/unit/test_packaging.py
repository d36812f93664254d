"""What is declared, what is locked and what is installed agree."""

from __future__ import annotations

import re
import tomllib
from importlib.metadata import entry_points, requires, version
from pathlib import Path

from packaging.requirements import Requirement

ROOT = Path(__file__).resolve().parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
AUTO = tomllib.loads((ROOT / "integrations" / "llmtrace-auto" / "pyproject.toml").read_text())["project"]
LOCKS = sorted((ROOT / "requirements").glob("*.txt"))


def locked(lock: Path) -> dict[str, list[str]]:
    """Name -> versions (one for each range of Pythons) of a lock file."""
    found: dict[str, list[str]] = {}
    for name, number in re.findall(r"^([a-z0-9._-]+)==([^ ;\\]+)", lock.read_text(), re.MULTILINE):
        found.setdefault(name, []).append(number)
    return found


def wanted() -> list[Requirement]:
    extras = PROJECT["optional-dependencies"]
    tools = [line for line in (ROOT / "requirements" / "dev.in").read_text().splitlines() if line and not line.startswith("#")]
    return [Requirement(text) for text in (*PROJECT["dependencies"], *extras["lightning"], *extras["structlog"], *tools)]


def canonical(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def test_the_lock_holds_a_fitting_version_of_everything_declared() -> None:
    lock = locked(ROOT / "requirements" / "dev.txt")
    assert [str(need) for need in wanted() if not all(need.specifier.contains(number) for number in lock.get(canonical(need.name), ["0.dev0"]))] == []


def test_every_locked_package_has_hashes_and_no_lock_names_an_address() -> None:
    assert [lock.name for lock in LOCKS] == ["dev.txt", "uv.txt"]
    for lock in LOCKS:
        entries = [entry for entry in re.split(r"^(?=[a-z0-9])", lock.read_text(), flags=re.MULTILINE) if "==" in entry]
        assert [entry.splitlines()[0] for entry in entries if "--hash=sha256:" not in entry] == []
        assert "://" not in lock.read_text()
        assert "index" not in re.sub(r"#.*", "", lock.read_text())


def test_the_two_bad_releases_of_lightning_are_kept_out() -> None:
    need = Requirement(PROJECT["optional-dependencies"]["lightning"][0])
    assert [number for number in ("2.6.1", "2.6.2", "2.6.3", "2.6.4") if not need.specifier.contains(number)] == ["2.6.2", "2.6.3"]


def test_what_is_installed_is_what_is_declared_here() -> None:
    assert version("llmtrace") == PROJECT["version"]
    assert {canonical(Requirement(text).name) for text in requires("llmtrace") or () if "extra ==" not in text} == {
        canonical(Requirement(text).name) for text in PROJECT["dependencies"]
    }
    (script,) = (entry for entry in entry_points(group="console_scripts") if entry.name == "llmtrace")
    assert callable(script.load())


def test_the_distribution_with_the_pth_file_fits_this_one() -> None:
    (need,) = (Requirement(text) for text in AUTO["dependencies"])
    assert need.name == "llmtrace"
    assert need.specifier.contains(PROJECT["version"])
    extra = Requirement(PROJECT["optional-dependencies"]["auto"][0])
    assert extra.specifier.contains(AUTO["version"])
