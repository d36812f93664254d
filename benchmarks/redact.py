"""Redaction: what a line costs that holds no secret, what one costs that holds words which secrets go by, and the slowest text that could be thought of."""

from __future__ import annotations

import time
from collections.abc import Iterable

from benchmarks.table import Row, interleaved, is_pgo, machine
from llmtrace.redact import RULES, Redactor

BUDGET_US, BUDGET_LITERALS, BUDGET_HOSTILE_S = 3.0, 0.7, 1.0
CALLS, ROUNDS = 2_000, 21
LONGEST = 65_536
"""Bytes of the longest record."""

CLEAN = "2026-11-30 03:14:07,412 INFO [rank 3] step 1234/100000 loss 2.3456 lr 3.0e-04 grad_norm 0.812 throughput 12,345 samples/s mem 61.2 GiB eta 3:14:07"
WORDS = (
    "epoch 3 | tokens/s 182,340 | n_tokens=4096 | key_padding_mask=None | num_key_value_heads: 8 | token_accuracy=0.61 | passed 3 of 4 | wandb on | loss 2.31"
)
SECRET = (
    "connecting to postgresql://ada:"
    + "hunter2"
    + "@db.internal:5432/runs with application_name=gpt retries=3 timeout=30 s pool=8 keepalive=on sslmode=require"
)
PIECES = (
    "a",
    "token",
    "token = ",
    "--token ",
    "--api-key",
    "password=,",
    "-----BEGIN PRIVATE KEY-----",
    "://a:",
    "eyJ",
    "bearer ",
    "secret: a1",
    "wandb login ",
    "\\'",
)


def rows() -> Iterable[Row]:
    """CPU time a line of about 150 bytes, as in the agent before a sink; and of one text of 64 KB made of a piece that many expressions begin with."""
    redactor = Redactor()
    lines = {"clean": CLEAN, "words": WORDS, "secret": SECRET}
    seen = interleaved(
        {
            **{name: lambda line=line: redactor.redact(line) for name, line in lines.items()},
            "all": lambda: [finder.search.search(CLEAN) for finder in redactor._finders],
            "control": lambda: [literal for literal in LITERALS if literal in CLEAN],
        },
        calls=CALLS,
        rounds=ROUNDS,
    )
    clean, words, secret, every, control = (seen[name] / 1000 for name in ("clean", "words", "secret", "all", "control"))
    beside = f"its {len(LITERALS)} literals one after the other {control:.2f} us; all expressions {every:.1f} us"
    why = "" if is_pgo() else f"3 us is for a PGO build; this one has none: {clean:.2f} us, {len(CLEAN) / clean:.0f} MB/s"
    yield Row(what=f"redact a clean line of {len(CLEAN)} B", measured=clean, unit="us", budget=BUDGET_US if is_pgo() else None, control=beside, why=why)
    yield Row(what="the same, in searches for each literal", measured=clean / control, unit="x", budget=BUDGET_LITERALS, control=beside)
    yield Row(what="the same", measured=len(CLEAN) / clean, unit="MB/s", budget=None, control=beside)
    yield Row(what="redact a line with words that secrets go by", measured=words, unit="us", budget=None, control=f"clean {clean:.2f} us")
    yield Row(what="redact a line with a password in an address", measured=secret, unit="us", budget=None, control=f"clean {clean:.2f} us")
    slowest_s, piece = max((cpu_s(redactor, piece * (LONGEST // len(piece))), piece) for piece in PIECES)
    plain_s = cpu_s(redactor, "a" * LONGEST)
    yield Row(
        what="redact the worst text of 64 KB",
        measured=slowest_s,
        unit="s",
        budget=BUDGET_HOSTILE_S,
        control=f"{piece!r} over and over; plain {plain_s * 1e6:.0f} us",
    )


LITERALS = [literal for rule in RULES for literal in rule.literals]


def cpu_s(redactor: Redactor, text: str) -> float:
    start = time.process_time()
    redactor.redact(text)
    return time.process_time() - start


def main() -> None:
    print(machine())
    for row in rows():
        print(f"{row.what}: {row.measured:.3g} {row.unit} ({row.verdict}); {row.control}")


if __name__ == "__main__":
    main()
