"""The reference says what the code says today."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

DOCS = Path(__file__).resolve().parents[2] / "docs"


def generator() -> ModuleType:
    spec = importlib.util.spec_from_file_location("generate", DOCS / "generate.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


GENERATOR = generator()


@pytest.mark.parametrize("page", GENERATOR.PAGES)
def test_page_is_what_the_code_says(page: str) -> None:
    assert (DOCS / "reference" / page).read_text() == GENERATOR.PAGES[page](), "run `make reference`"


def test_every_setting_of_the_code_is_on_the_page() -> None:
    from llmtrace import config

    text = (DOCS / "reference" / "settings.md").read_text()
    assert all(f"`{variable}`" in text for setting in config.SETTINGS for variable in setting.variables)
