"""The failure catalogue: kinds of texts, not the lines of one file; and logs of healthy runs raise nothing."""

from __future__ import annotations

import json
import re
import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from llmtrace.diagnose.catalogue import LONGEST, UNKNOWN, classify, rules, suspicious
from llmtrace.diagnose.patterns import alternatives, any_of, needed_word

CASES = Path(__file__).resolve().parents[3] / "shared" / "cases"
"""Material of the place where this is built; what is not there adds no case."""
OWN = [tuple(json.loads(line).values()) for line in Path(__file__).with_name("catalogue_texts.jsonl").read_text().splitlines()]
TEXTS = [(category, role, text) for category, role, text in OWN if role != "harmless"]
HARMLESS = [text for _, role, text in OWN if role == "harmless"]
ALARMS = ("root_cause", "cause_confirmation")

CATEGORIES = frozenset(
    re.findall(
        r"\w+",
        """gpu_oom host_oom gpu_hardware nvlink interconnect device_unavailable gpu_program_error program_error collective_stall collective_mismatch
        peer_loss process_death rendezvous data_pipeline storage host_shm numerics scheduler eviction straggler node_loss threshold launcher_summary
        teardown_noise advice_text unknown""",
    )
)
ROLES = frozenset(["root_cause", "symptom", "cause_confirmation", "benign", "ambiguous"])


@pytest.mark.parametrize(("category", "role", "text"), TEXTS, ids=[text[:50] for _, _, text in TEXTS])
def test_what_broke_and_what_the_text_is_evidence_of(category: str, role: str, text: str) -> None:
    found = classify(text)
    assert (found.category, found.role) == (category, role)
    assert found.reason


@pytest.mark.parametrize(
    "prefix", ["[rank7]: ", "2026-11-26 10:00:00,123 ERROR train: ", "3: ", "node01:238:1219 [0] ", "\x1b[31m", "Epoch 1: 40%|###   | 4/10 [00:04<00:06]\r"]
)
def test_what_stands_before_a_text_changes_nothing(prefix: str) -> None:
    text = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 MiB."
    assert classify(prefix + text).category == "gpu_oom"


@pytest.mark.parametrize("text", HARMLESS)
def test_lines_of_healthy_runs_raise_nothing(text: str) -> None:
    assert classify(text).role not in (*ALARMS, "symptom")


def test_the_table_uses_only_the_names_that_are_published() -> None:
    assert {found.category for _, found in rules()} <= CATEGORIES
    assert {found.role for _, found in rules()} <= ROLES


def test_every_rule_needs_a_word_long_enough_to_tell_lines_apart() -> None:
    assert [alternative.source for alternative, _ in rules() if len(alternative.word) < 3] == []


def test_most_lines_of_a_log_are_not_looked_at_twice() -> None:
    lines = [f"2026-11-26 10:00:{i % 60:02d},123 INFO train: step {i} loss 2.3{i} lr 3e-4 grad_norm 0.8 tokens/s 1234" for i in range(100)]
    assert not any(map(suspicious, lines))


@given(st.text())
def test_any_text_has_an_answer(text: str) -> None:
    assert classify(text).category in CATEGORIES


def test_a_megabyte_has_an_answer_from_its_ends() -> None:
    filler = "x" * (3 * LONGEST)
    assert classify(f"ValueError: bad\n{filler}").category == "program_error"
    assert classify(f"{filler}\nValueError: bad").category == "program_error"
    assert classify(f"{filler}\nValueError: bad\n{filler}") is UNKNOWN


PIECES = ("abc", "d?", "(?:x|yz)", "[ab|)]", "[^]]", r"\d{2,3}", r"\(", "e*", "(q(?:r|s)|t)", "uv", "|", ".", r"\|", "w{2}", "^", "$", "(?i:kl)")


@settings(deadline=None)
@given(st.lists(st.sampled_from(PIECES), min_size=1, max_size=6).map("".join), st.data())
def test_every_match_of_an_alternative_holds_its_word(pattern: str, data: st.DataObject) -> None:
    parts = alternatives(pattern)
    assert "|".join(parts) == pattern
    for part in parts:
        text = data.draw(st.from_regex(re.compile(part, re.MULTILINE), alphabet=st.characters(max_codepoint=0x7F)))
        assert needed_word(part) in text


@given(st.sets(st.text("abc", min_size=1, max_size=4), min_size=1), st.text("abcd", max_size=12))
def test_the_tree_of_words_finds_what_a_search_for_each_finds(words: set[str], text: str) -> None:
    assert (re.search(any_of(words), text) is not None) == any(word in text for word in words)


def test_texts_of_real_jobs() -> None:
    texts = [tuple(json.loads(line).values()) for line in (CASES / "failure_texts.jsonl").read_text().splitlines()] if CASES.exists() else []
    told = [(category, role, text) for _, text, category, role, _ in texts] or list(TEXTS)
    found = [(classify(text), category, role, text) for category, role, text in told]
    wrong = [text for verdict, category, role, text in found if (verdict.category, verdict.role) != (category, role)]
    assert wrong in ([], ["RuntimeError: CUDA error: out of memory"])  # there, that the node's GPU was faulty is not in the text


def test_logs_of_runs_that_succeeded_raise_nothing() -> None:
    logs = sorted((CASES / "healthy_logs").glob("*.txt"))
    lines = [line for log in logs for line in re.split(r"[\r\n]+", log.read_text(errors="replace"))] or list(HARMLESS)
    verdicts = {line: classify(line) for line in lines}
    assert {line: found for line, found in verdicts.items() if found.role != "benign" and found is not UNKNOWN} == {}


@pytest.mark.parametrize(
    "unit", ["[", "a[b] ", "NCCL WARN ", "Error: ", "12:", "loss is ", "srun: error: ", "x.y", "Timeout waiting for key ", "Killed ", " ", "CRITICAL:a:"]
)
def test_no_text_takes_long(unit: str) -> None:
    text = f"{unit * (2 * LONGEST // len(unit))} Error"
    began = time.process_time()
    classify(text)
    assert time.process_time() - began < 1  # a pattern that goes back and forth takes minutes
