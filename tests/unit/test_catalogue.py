"""The failure catalogue: kinds of texts, not the lines of one file; and logs of healthy runs raise nothing."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from llmtrace.diagnose.catalogue import classify, rules, suspicious


@pytest.mark.parametrize("rule", rules(), ids=lambda rule: rule[0].source[:60] if isinstance(rule, tuple) else None)
@settings(max_examples=8, deadline=None, database=None)
@given(data=st.data())
def test_every_text_a_rule_fits_passes_the_first_look_and_holds_its_word(rule, data):
    alternative, _ = rule
    text = data.draw(st.from_regex(alternative.search, alphabet=st.characters(max_codepoint=0x24F)))
    assert alternative.word in text
    assert suspicious(text)
