"""Who a process is: every source of the trace id in its order, ranks as their launchers name them, and what is assumed of the rest."""

from __future__ import annotations

import hashlib
import os
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmtrace.config import Config, resolve
from llmtrace.identity import (
    attempt_known,
    facts,
    fallbacks,
    is_lone,
    job_name,
    launch_key,
    launch_trace,
    node_span_id,
    place,
    resource,
    trace_id_known,
    traceparent,
)
from llmtrace.record import Identity

UUID = "c9bc0a07-3f16-4753-a15e-1deab80b6bdb"
GIVEN, PARENT = "1" * 32, "0af7651916cd43dd8448eb211c80319c"
SOURCES: list[tuple[str, dict[str, str], str]] = [
    ("given", {"LLMTRACE_TRACE_ID": GIVEN}, GIVEN),
    ("traceparent", {"TRACEPARENT": f"00-{PARENT}-b7ad6b7169203331-01"}, PARENT),
    ("run id", {"LLMTRACE_RUN_ID": "nightly-7"}, "run/nightly-7"),
    ("slurm", {"SLURM_CLUSTER_NAME": "c1", "SLURM_JOB_ID": "42", "SLURM_STEP_ID": "3"}, "slurm/c1/42/3"),
    ("kubernetes", {"OTEL_RESOURCE_ATTRIBUTES": "a=b,k8s.job.uid=7f%2D1"}, "k8s/7f-1"),
    ("torchrun", {"TORCHELASTIC_RUN_ID": UUID}, f"torchelastic/{UUID.replace('-', '')}"),
]


def config(environ: dict[str, str], **settings: Any) -> Config:
    return resolve(settings, environ, "/nonexistent")


def expected(text: str) -> str:
    return text if len(text) == 32 and "/" not in text else hashlib.sha256(text.encode()).hexdigest()[:32]


@pytest.mark.parametrize("first", range(len(SOURCES)), ids=[name for name, _, _ in SOURCES])
def test_each_source_of_the_trace_id_beats_all_after_it(first: int) -> None:
    environ: dict[str, str] = {}
    for _, variables, _ in SOURCES[first:]:
        environ |= variables
    assert trace_id_known(config(environ), environ) == expected(SOURCES[first][2])


def test_an_argument_beats_the_environment() -> None:
    environ = {"LLMTRACE_TRACE_ID": GIVEN}
    assert trace_id_known(config(environ, trace_id="2" * 32), environ) == "2" * 32


@pytest.mark.parametrize("run", ["none", "100", "my-job", "", UUID[:-1], UUID.replace("-", "")])
def test_a_rendezvous_id_that_people_type_is_no_trace_id(run: str) -> None:
    environ = {"TORCHELASTIC_RUN_ID": run}
    assert trace_id_known(config(environ), environ) == ""


def test_a_slurm_step_is_its_own_job_and_a_batch_script_is_one() -> None:
    base = {"SLURM_JOB_ID": "42"}
    steps = [trace_id_known(config(e), e) for e in (base, base | {"SLURM_STEP_ID": "0"}, base | {"SLURM_STEP_ID": "1"}, {"SLURM_JOB_ID": "43"})]
    assert len(set(steps)) == 4


def torchrun(rank: int = 1, *, local_world: int = 2, world: int = 2, restart: int = 0, folder: str = "/tmp/torchelastic_a/none_b") -> dict[str, str]:
    return {
        "RANK": str(rank),
        "LOCAL_RANK": str(rank % local_world),
        "WORLD_SIZE": str(world),
        "LOCAL_WORLD_SIZE": str(local_world),
        "TORCHELASTIC_RUN_ID": "none",
        "TORCHELASTIC_RESTART_COUNT": str(restart),
        "TORCHELASTIC_ERROR_FILE": f"{folder}/attempt_{restart}/{rank % local_world}/error.json",
    }


def test_the_launch_of_a_single_node_torchrun_is_the_job_over_all_its_ranks_and_restarts() -> None:
    starts = [torchrun(0), torchrun(1), torchrun(0, restart=1)]
    traces = {trace_id_known(config(e), e) for e in starts}
    attempts = [attempt_known(config(e), e) for e in starts]
    assert len(traces) == 1 and len(traces.pop()) == 32
    assert attempts[0] == attempts[1] != attempts[2]
    other = torchrun(0, folder="/tmp/torchelastic_a/none_c")
    assert trace_id_known(config(other), other) != trace_id_known(config(starts[0]), starts[0])


def test_on_several_nodes_a_launch_is_no_job() -> None:
    environ = torchrun(1, world=4)
    assert trace_id_known(config(environ), environ) == "" == attempt_known(config(environ), environ)
    assert launch_key(config(environ), environ)


@pytest.mark.parametrize(
    ("environ", "rank", "local_rank", "world_size", "lone"),
    [
        ({}, None, None, None, True),
        ({"WORLD_SIZE": "1", "RANK": "0"}, 0, None, 1, True),
        ({"RANK": "3", "LOCAL_RANK": "1", "WORLD_SIZE": "4"}, 3, 1, 4, False),
        ({"SLURM_PROCID": "5", "SLURM_LOCALID": "1", "SLURM_NTASKS": "8"}, 5, 1, 8, False),
        ({"SLURM_PROCID": "0", "SLURM_NTASKS": "1"}, None, None, None, True),
        ({"SLURM_PROCID": "0", "SLURM_NTASKS": "8", "SLURM_STEP_NUM_TASKS": "1"}, None, None, None, True),
        ({"SLURM_PROCID": "0", "SLURM_NTASKS": "2", "RANK": "7", "WORLD_SIZE": "16"}, 7, None, 16, False),
        ({"LOCAL_RANK": "1", "NODE_RANK": "0", "WORLD_SIZE": "2"}, 1, 1, 2, False),
        ({"LOCAL_RANK": "1", "NODE_RANK": "0"}, 1, 1, None, False),
        ({"LOCAL_RANK": "1", "NODE_RANK": "1", "WORLD_SIZE": "4"}, None, 1, 4, False),
        ({"RANK": "x", "WORLD_SIZE": "-1"}, None, None, None, True),
        ({"WORLD_SIZE": "2"}, None, None, 2, False),
    ],
)
def test_the_rank_is_what_the_launcher_says_and_never_a_guess(
    environ: dict[str, str], rank: int | None, local_rank: int | None, world_size: int | None, lone: bool
) -> None:
    where = place(environ)
    assert (where.rank, where.local_rank, where.world_size) == (rank, local_rank, world_size)
    assert is_lone(where) is lone


def test_facts_hold_settings_place_and_launch() -> None:
    environ = torchrun(1, world=4) | {"LLMTRACE_TEAM": "vision", "LLMTRACE_NODE": "node-b"}
    found = facts(config(environ), environ, command="/opt/train.py")
    assert (found.rank, found.world_size, found.node, found.team, found.job) == (1, 4, "node-b", "vision", "train")
    assert found.trace_id == "" == found.attempt
    assert len(found.launch) == 16
    assert len(found.span_id) == 16
    assert found.pid == os.getpid()


def test_two_starts_are_two_spans() -> None:
    assert facts(config({}), {}).span_id != facts(config({}), {}).span_id


@pytest.mark.parametrize(
    ("environ", "command", "name"),
    [
        ({"LLMTRACE_JOB": "mine", "SLURM_JOB_NAME": "theirs"}, "a.py", "mine"),
        ({"SLURM_JOB_NAME": "theirs"}, "a.py", "theirs"),
        ({"OTEL_RESOURCE_ATTRIBUTES": "k8s.job.name=gpt"}, "a.py", "gpt"),
        ({}, "/x/a.py", "a"),
        ({}, "-c", ""),
    ],
)
def test_the_job_is_named_by_the_user_else_the_scheduler_else_the_program(environ: dict[str, str], command: str, name: str) -> None:
    assert job_name(config(environ), environ, command) == name


def test_lightnings_ranks_share_a_launch_on_one_node() -> None:
    main = {"LOCAL_RANK": "0", "NODE_RANK": "0", "WORLD_SIZE": "2"}
    key = launch_key(config(main), main)
    assert str(os.getpid()) in key
    child = main | {"LOCAL_RANK": "1"}
    assert str(os.getppid()) in launch_key(config(child), child)


def test_a_forked_child_and_a_sibling_of_the_launch_fill_what_a_dead_rank_never_learned() -> None:
    learned = Identity(span_id="a" * 16, trace_id="1" * 32, attempt="x1", launch="L", job="gpt", restart=0)
    early = Identity(span_id="b" * 16, launch="L", restart=0)
    restarted = Identity(span_id="c" * 16, launch="L", restart=1)
    worker = Identity(span_id="d" * 16, parent_span_id="b" * 16, role="worker")
    alone = Identity(span_id="e" * 16)
    found = fallbacks([learned, early, restarted, worker, alone])
    assert found["b" * 16] == {"trace_id": "1" * 32, "attempt": "x1", "job": "gpt"} == found["d" * 16]
    assert found["c" * 16] == {"trace_id": "1" * 32, "attempt": "1", "job": "gpt"}
    assert found["e" * 16]["trace_id"] not in ("", "1" * 32)


def test_ranks_that_all_died_early_are_one_trace_and_it_is_the_one_their_job_would_have_had() -> None:
    environ = torchrun(0)
    known = facts(config(environ), environ)
    early = msgspec.structs.replace(known, trace_id="", attempt="")
    assert fallbacks([early])[early.span_id]["trace_id"] == known.trace_id == launch_trace(known.launch)


@given(
    st.lists(
        st.builds(
            Identity,
            span_id=st.sampled_from("abcd"),
            parent_span_id=st.sampled_from("abcdx"),
            trace_id=st.sampled_from(["", "t", "u"]),
            launch=st.sampled_from(["", "L"]),
        )
    )
)
def test_assumptions_do_not_depend_on_order_and_never_contradict_what_is_known(identities: list[Identity]) -> None:
    unique = list({i.span_id: i for i in identities}.values())
    found = fallbacks(unique)
    assert found == fallbacks(reversed(unique))
    for identity in unique:
        assert found[identity.span_id]["trace_id"] == identity.trace_id or not identity.trace_id
        assert found[identity.span_id]["trace_id"] and found[identity.span_id]["attempt"]


@pytest.mark.parametrize("text", ["", "00", f"ff-{PARENT}-b7ad6b7169203331-01", f"00-{'0' * 32}-b7ad6b7169203331-01", "00-xyz-1-01", f"0-{PARENT}-1-01"])
def test_what_is_no_traceparent_is_ignored(text: str) -> None:
    assert traceparent(text) == ""


@given(st.text())
def test_no_text_breaks_the_parsers(text: str) -> None:
    assert len(traceparent(text)) in (0, 32)
    assert isinstance(resource({"OTEL_RESOURCE_ATTRIBUTES": text}, "k8s.job.uid"), str)
    assert isinstance(launch_key(config({}), {"TORCHELASTIC_ERROR_FILE": text}), str)
    assert place({"RANK": text}).rank is None or text.strip().isdecimal()


def test_a_nodes_span_follows_from_trace_and_node_alone() -> None:
    assert node_span_id(GIVEN, "a") == node_span_id(GIVEN, "a") != node_span_id(GIVEN, "b")
    assert node_span_id("", "a") == ""
