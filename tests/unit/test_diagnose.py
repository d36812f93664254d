"""Diagnosis: from what was seen of a cascade to who began it, as real cascades go."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmtrace.diagnose import Verdict, diagnose
from llmtrace.record import ERROR, Process, Record
from tests.support.cases import GLOO, TORCH_STACK, WARN, death, ended, failure, line, lost_peer, ns, process, seconds, shortage, step, who


def judged(records: list[Record], processes: list[Process]) -> Verdict:
    verdict = diagnose(records, processes, ns(200))
    assert verdict is not None
    return verdict


def facts(verdict: Verdict) -> tuple[str, str, int | None, list[int]]:
    return verdict.category, verdict.role, verdict.culprit.rank, verdict.symptoms


# One rank fails, the other follows: each fault of the main job, whole and at its first moment.


def test_an_exception_is_the_cause_and_the_peer_that_lost_it_a_symptom() -> None:
    cause, symptom = failure(who(1), 100, "ValueError", "bad batch 7f3a"), lost_peer(0, 100.1)
    verdict = judged([symptom, cause], [process(0, "killed", -15, 101.3), process(1, "raised", 1, 101.2)])
    assert facts(verdict) == ("program_error", "root_cause", 1, [0])
    assert (seconds(verdict.onset_ns), verdict.candidate) == (100, True)
    assert verdict.evidence == [cause.id, symptom.id]
    assert verdict.summary == "rank 1 failed in step 40 (forward): ValueError: bad batch 7f3a; rank 0 then lost its peer"


def test_the_first_record_of_an_exception_is_enough() -> None:
    verdict = judged([failure(who(1), 100, "ValueError", "bad batch")], [process(0), process(1)])
    assert facts(verdict) == ("program_error", "root_cause", 1, [])
    assert verdict.candidate


def test_a_kill_is_a_death_of_which_nobody_has_said_who_did_it() -> None:
    died = death(who(1), 100, -9)
    verdict = judged([died, lost_peer(0, 100.1)], [process(0, "killed", -15, 101.3), process(1, "killed", -9, 100)])
    assert facts(verdict) == ("process_death", "ambiguous", 1, [0])
    assert verdict.evidence[0] == died.id
    assert verdict.summary == "rank 1 was killed (SIGKILL) in step 40 (forward); rank 0 then lost its peer"


def test_what_the_kernel_says_of_a_killed_rank_makes_it_out_of_memory() -> None:
    said = line(who(0), 101, "Out of memory: Killed process 1001 (python) total-vm:51234kB, anon-rss:4812kB")
    verdict = judged([said, lost_peer(0, 100.1)], [process(0, "killed", -15, 101.3), process(1, "killed", -9, 100)])
    assert facts(verdict) == ("host_oom", "root_cause", 1, [0])
    assert said.id in verdict.evidence


def test_an_allocation_that_failed_and_the_exception_that_it_became_are_one() -> None:
    short = shortage(who(1), 100)
    raised = failure(who(1), 100.01, "RuntimeError", str(short.body))
    verdict = judged([short, raised, lost_peer(0, 100.2)], [process(0), process(1, "raised", 1, 101)])
    assert facts(verdict) == ("host_oom", "root_cause", 1, [0])
    assert verdict.evidence[:2] == [short.id, raised.id]
    assert "ran out of host memory in step 40 (forward): 1.0 PiB asked for" in verdict.summary


def test_a_gpu_allocation_that_the_program_caught_is_no_incident() -> None:
    caught = shortage(who(1), 100, "cuda:1", severity=ERROR)
    assert diagnose([caught], [process(0), process(1)], ns(200)) is None


def test_a_gpu_that_ran_out_is_named() -> None:
    verdict = judged(
        [shortage(who(1), 100, "cuda:1", asked=20 << 20), failure(who(1), 100.01, "torch.OutOfMemoryError", "CUDA out of memory")], [process(0), process(1)]
    )
    assert facts(verdict)[:3] == ("gpu_oom", "root_cause", 1)
    assert "GPU memory on cuda:1" in verdict.summary and "20.0 MiB" in verdict.summary


def test_an_exit_without_a_word_is_a_process_death() -> None:
    verdict = judged([lost_peer(0, 100.1)], [process(0, "killed", -15, 101.3), process(1, "exited", 7, 100)])
    assert facts(verdict) == ("process_death", "root_cause", 1, [0])
    assert "exited with code 7" in verdict.summary


@pytest.mark.parametrize(
    ("code", "category"), [(-11, "process_death"), (-7, "host_shm"), (-4, "process_death"), (137, "process_death"), (139, "process_death")]
)
def test_a_signal_is_named_and_its_sender_is_not_guessed(code: int, category: str) -> None:
    verdict = judged([], [process(0), process(1, "killed", code, 100)])
    assert facts(verdict)[:3] == (category, "ambiguous", 1)
    assert "SIG" in verdict.summary


def test_an_end_that_nobody_saw_is_ambiguous() -> None:
    verdict = judged([lost_peer(0, 100.1)], [process(0, "killed", -15, 101), process(1, "unknown", None, 100)])
    assert facts(verdict) == ("process_death", "ambiguous", 1, [0])


def test_where_all_ranks_are_gone_unseen_nobody_is_singled_out() -> None:
    verdict = judged([], [process(0, "unknown", None, 100), process(1, "unknown", None, 99)])
    assert (facts(verdict), seconds(verdict.onset_ns)) == (("process_death", "ambiguous", None, [0, 1]), 100)
    assert verdict.summary == "ranks 0, 1 on a are gone, nobody saw how; the onset is the last sign of life"
    assert judged([], [process(0, "unknown", None, 100)]).culprit.rank == 0


def test_where_all_ranks_are_killed_at_once_nobody_is_singled_out() -> None:
    verdict = judged([], [process(0, "killed", -9, 100.05), process(1, "killed", -9, 100)])
    assert (facts(verdict), seconds(verdict.onset_ns)) == (("process_death", "ambiguous", None, [0, 1]), 100)
    assert verdict.summary == "ranks 0, 1 on a were killed (SIGKILL) together"
    assert judged([], [process(0, "killed", -9, 102), process(1, "killed", -9, 100)]).culprit.rank == 1


def test_a_death_that_nobody_saw_does_not_go_before_what_was_seen_though_its_last_sign_of_life_is_older() -> None:
    unseen = death(who(0), 90, -9)
    unseen = msgspec.structs.replace(unseen, attributes={**unseen.attributes, "llmtrace.process.unseen": True})
    both = [process(0, "killed", -9, 90), process(1, "exited", 7, 100)]
    assert judged([unseen, death(who(1), 100, 7)], both).culprit.rank == 1
    assert judged([unseen, lost_peer(1, 100)], [both[0], process(1, "raised", 1, 101)]).culprit.rank == 0


def test_an_exception_whose_record_was_lost_is_still_an_exception() -> None:
    assert facts(judged([], [process(0), process(1, "raised", 1, 100)]))[:3] == ("program_error", "root_cause", 1)


def test_a_crash_that_faulthandler_saw_is_the_process_own_word() -> None:
    crash = failure(who(1), 100, "fatal signal", "Fatal Python error: Segmentation fault", seen_by="faulthandler")
    verdict = judged([crash], [process(0), process(1, "killed", -11, 100)])
    assert facts(verdict)[:3] == ("process_death", "root_cause", 1)
    assert verdict.summary == "rank 1 crashed (SIGSEGV) in step 40 (forward): Fatal Python error: Segmentation fault"


def test_an_abort_that_faulthandler_saw_is_a_death_unless_symptoms_came_before() -> None:
    aborted = failure(who(1), 100, "fatal signal", "Fatal Python error: Aborted", seen_by="faulthandler")
    ends = [process(0, "killed", -15, 101), process(1, "killed", -6, 100)]
    assert facts(judged([aborted], ends)) == ("process_death", "ambiguous", 1, [0])
    timeout = line(who(1), 99, "[Rank 1] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=4) ran for 30000 milliseconds before timing out.")
    assert judged([timeout, aborted], ends).category == "collective_stall"


def test_an_abort_that_is_seen_a_moment_after_its_peer_lost_it_is_what_the_peer_lost() -> None:
    aborted = failure(who(1), 100.1, "fatal signal", "Fatal Python error: Aborted", seen_by="faulthandler")
    ends = [process(0, "raised", 1, 101), process(1, "killed", -6, 100.1)]
    verdict = judged([lost_peer(0, 100), aborted], ends)
    assert (facts(verdict), seconds(verdict.onset_ns)) == (("process_death", "ambiguous", 1, [0]), 100)
    assert judged([lost_peer(0, 98), aborted], ends).category == "peer_loss"


def test_a_memory_error_that_says_nothing_more_leaves_no_empty_quote() -> None:
    assert judged([failure(who(1), 100, "MemoryError")], [process(0), process(1)]).summary.startswith("rank 1 ran out of host memory")
    silent = shortage(who(1), 100)
    silent = msgspec.structs.replace(silent, body="", attributes={"llmtrace.oom.device": "cpu"})
    assert judged([silent], [process(0), process(1)]).summary == "rank 1 ran out of host memory in step 40 (forward)"


def test_sys_exit_with_a_code_began_when_it_was_called_not_when_the_process_was_gone() -> None:
    left = death(who(1), 100.2, 1)
    left = msgspec.structs.replace(left, attributes={**left.attributes, "llmtrace.process.teardown_ns": 2_200_000_000})
    verdict = judged([left, lost_peer(0, 100)], [process(0, "raised", 1, 101), process(1, "exited", 1, 100.2)])
    assert (facts(verdict), seconds(verdict.onset_ns)) == (("process_death", "root_cause", 1, [0]), 98)


# Many victims, one culprit.


def test_the_launchers_signals_to_survivors_are_symptoms() -> None:
    ranks = [process(r, "killed", -15, 101, world=4) for r in (0, 1, 3)]
    verdict = judged([failure(who(2, world=4), 100, "KeyError", "'x'")], [*ranks, process(2, "raised", 1, 101.2, world=4)])
    assert facts(verdict) == ("program_error", "root_cause", 2, [0, 1, 3])
    assert "ranks 0, 1, 3 were then ended by SIGTERM" in verdict.summary


def test_lightnings_kill_of_the_others_is_a_symptom() -> None:
    ranks = [process(r, "killed", -9, 103, world=4) for r in (0, 2, 3)]
    verdict = judged([failure(who(1, world=4), 100, "ValueError", "x")], [*ranks, process(1, "raised", 1, 101, world=4)])
    assert facts(verdict) == ("program_error", "root_cause", 1, [0, 2, 3])


def test_rank_0_that_lost_its_peer_and_was_then_ended_has_its_exception_as_symptom() -> None:
    symptom = failure(who(0), 100.05, "RuntimeError", "[...] Read error [127.0.0.1]:4: Connection reset by peer", stack=TORCH_STACK)
    verdict = judged([symptom, death(who(0), 101, -15), death(who(1), 100, -9)], [process(0, "killed", -15, 101), process(1, "killed", -9, 100)])
    assert facts(verdict) == ("process_death", "ambiguous", 1, [0])
    assert symptom.id in verdict.evidence
    assert verdict.summary.endswith("rank 0 then lost its peer")


def test_the_watchdogs_abort_after_a_timeout_is_a_symptom() -> None:
    timeout = (
        "Watchdog caught collective operation timeout: WorkNCCL(SeqNum=4, OpType=ALLREDUCE, Timeout(ms)=600000) ran for 600029 milliseconds before timing out."
    )
    lines = [line(who(r, world=4), 700, timeout) for r in (0, 2, 3)]
    ranks = [process(r, "killed", -6, 700.5, world=4) for r in (0, 2, 3)]
    verdict = judged(lines, [*ranks, process(1, "killed", -15, 701, step=39, world=4)])
    assert facts(verdict) == ("collective_stall", "ambiguous", 1, [0, 2, 3])
    assert seconds(verdict.onset_ns) == pytest.approx(99.971, abs=0.01)
    assert "stayed at step 39" in verdict.summary


def test_an_abort_with_nothing_before_it_is_a_death() -> None:
    assert facts(judged([lost_peer(0, 100.2)], [process(0), process(1, "killed", -6, 100)])) == ("process_death", "ambiguous", 1, [0])


def test_the_earliest_of_several_exceptions_wins_however_many_follow() -> None:
    records = [failure(who(r, world=8), 100 + r / 10, "ValueError", f"bad {r}") for r in range(7, -1, -1) if r != 0] + [
        failure(who(0, world=8), 100.05, "ValueError", "first")
    ]
    assert facts(judged(records, [process(r, world=8) for r in range(8)]))[:3] == ("program_error", "root_cause", 0)


def test_within_clock_error_hardware_goes_before_the_program() -> None:
    broken = failure(who(1), 100.001, "RuntimeError", "CUDA error: uncorrectable ECC error encountered")
    verdict = judged([failure(who(0), 100, "ValueError", "x"), broken], [process(0), process(1)])
    assert facts(verdict) == ("gpu_hardware", "root_cause", 1, [0])


def test_hundreds_of_victims_are_told_in_one_sentence() -> None:
    ranks = [process(r, world=256) for r in range(256)]
    verdict = judged([failure(who(77, world=256), 100, "ValueError", "x"), *(lost_peer(r, 100.1, world=256) for r in range(256) if r != 77)], ranks)
    assert verdict.culprit.rank == 77
    assert verdict.summary.endswith("ranks 0-76, 78-255 then lost their peer")
    assert len(verdict.evidence) <= 20


# Whose exception is it?


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        ("__main__.FeatureStoreError", "connection closed by peer [10.0.0.1]:80"),
        ("myteam.net.Connection", "Connection reset by peer"),
        ("requests.exceptions.ConnectionError", "('Connection aborted.', ConnectionResetError(104, 'Connection reset by peer'))"),
        ("ValueError", "connection string is empty"),
        ("TimeoutError", "Timed out waiting 5000ms for recv of the feature store"),
    ],
)
def test_a_users_exception_about_a_connection_is_a_program_error(kind: str, message: str) -> None:
    stack = 'Traceback (most recent call last):\n  File "/home/u/train.py", line 9, in train\n    raise make(kind)\n'
    assert facts(judged([failure(who(1), 100, kind, message, stack=stack)], [process(0), process(1)]))[:3] == ("program_error", "root_cause", 1)


def test_a_users_exception_raised_from_a_lost_peer_is_a_symptom() -> None:
    stack = (
        f"{TORCH_STACK}RuntimeError: {GLOO}\n\nThe above exception was the direct cause of the following exception:\n\nTraceback (most recent call last):\n"
        '  File "/home/u/train.py", line 12, in train\n    raise TrainingFailed("step failed") from error\n'
    )
    wrapped = failure(who(0), 100.1, "__main__.TrainingFailed", "step failed", stack=stack)
    verdict = judged([wrapped], [process(0), process(1, "killed", -9, 100.2)])
    assert facts(verdict) == ("process_death", "ambiguous", 1, [0])


def test_a_users_exception_raised_from_an_out_of_memory_is_one() -> None:
    stack = (
        'Traceback (most recent call last):\n  File "/home/u/train.py", line 9, in train\n    x = torch.empty(1 << 50)\n'
        "RuntimeError: [enforce fail at alloc_cpu.cpp:127] . DefaultCPUAllocator: can't allocate memory: you tried to allocate 9 bytes.\n\n"
        "During handling of the above exception, another exception occurred:\n\nTraceback (most recent call last):\n"
        '  File "/home/u/train.py", line 12, in train\n    raise SystemError("gave up")\n'
    )
    assert facts(judged([failure(who(1), 100, "SystemError", "gave up", stack=stack)], [process(1)]))[:2] == ("host_oom", "root_cause")


def test_an_exception_without_a_traceback_is_judged_by_its_words() -> None:
    assert facts(judged([failure(who(0), 100, "RuntimeError", GLOO)], [process(0), process(1)]))[:2] == ("peer_loss", "ambiguous")


def test_sys_exit_with_a_code_is_a_failure() -> None:
    assert facts(judged([failure(who(1), 100, "SystemExit", "3")], [process(0), process(1, "exited", 3, 100.5)]))[:3] == ("program_error", "root_cause", 1)


def test_sys_exit_in_a_handler_of_sigterm_is_no_failure() -> None:
    assert diagnose([failure(who(r), 100, "SystemExit", "143") for r in (0, 1)], [process(r, "exited", 143, 100.5) for r in (0, 1)], ns(200)) is None


# Symptoms alone, and rule 3: absence.


def test_symptoms_alone_are_no_candidate_and_name_the_one_who_said_nothing() -> None:
    verdict = judged([lost_peer(r, 100, world=4) for r in (0, 1, 3)], [process(r, world=4) for r in range(4)])
    assert facts(verdict) == ("peer_loss", "ambiguous", 2, [0, 1, 3])
    assert not verdict.candidate
    assert verdict.summary == "rank 2 said nothing while the others failed; ranks 0, 1, 3 lost their peer"


@pytest.mark.parametrize("ending", ["clean", "exited"])
def test_who_ended_well_while_the_others_trained_on_is_the_one_to_look_at(ending: str) -> None:
    records = [lost_peer(r, 100, world=3) for r in (0, 2)]
    verdict = judged(records, [process(0, world=3), process(1, ending, 0, 100.1, step=39, progress=99.2, world=3), process(2, world=3)])  # type: ignore[arg-type]
    assert facts(verdict) == ("peer_loss", "ambiguous", 1, [0, 2])
    assert seconds(verdict.onset_ns) == 99.2
    assert verdict.summary == "rank 1 ended well at step 39 while the others went on; ranks 0, 2 lost their peer"


def test_who_ended_well_because_the_others_had_failed_is_not() -> None:
    assert judged([lost_peer(0, 100)], [process(0), process(1, "clean", 0, 103, progress=100)]).culprit.rank is None


def test_who_stayed_behind_in_steps_is_the_one_to_look_at() -> None:
    timeout = failure(who(0), 100, "RuntimeError", "[x/unbound_buffer.cc:78] Timed out waiting 30000ms for recv operation to complete", stack=TORCH_STACK)
    verdict = judged([timeout], [process(0, progress=69), process(1, step=39, phase="data_wait", progress=68.5)])
    assert facts(verdict) == ("collective_stall", "ambiguous", 1, [0])
    assert seconds(verdict.onset_ns) == 68.5
    assert "rank 1 stayed at step 39 while others had come to step 40" in verdict.summary


def test_who_stopped_earlier_in_the_same_step_is_the_one_to_look_at() -> None:
    verdict = judged(
        [lost_peer(r, 100, world=3) for r in range(3)], [process(0, progress=99, world=3), process(1, progress=90, world=3), process(2, progress=99.5, world=3)]
    )
    assert verdict.culprit.rank == 1
    assert "9.0 s before any other" in verdict.summary


def test_a_rank_of_which_nothing_is_here_is_named_where_it_is_the_only_one() -> None:
    assert facts(judged([lost_peer(0, 100)], [process(0)])) == ("peer_loss", "ambiguous", 1, [0])


def test_where_nobody_stands_out_nobody_is_blamed() -> None:
    verdict = judged([lost_peer(0, 100), lost_peer(1, 100.001)], [process(0), process(1)])
    assert facts(verdict) == ("peer_loss", "symptom", None, [0, 1])
    assert "no cause" in verdict.reason
    assert verdict.summary.count("rank 0") == 1


# No incident: clean ends, wishes of the user, what was overcome.


def test_after_a_clean_end_nothing_is_an_incident() -> None:
    records = [
        line(who(0), 99, "RuntimeError: CUDA error: an illegal memory access was encountered"),
        failure(who(1), 50, "ValueError", "caught by the caller", step=None),
    ]
    assert diagnose(records, [process(0, "clean", 0, 100), process(1, "clean", None, 100)], ns(200)) is None


def test_alarming_lines_while_training_goes_on_are_no_incident() -> None:
    assert diagnose([line(who(0), 99, "NCCL WARN Call to recv failed : Connection reset by peer")], [process(0), process(1)], ns(200)) is None


def test_nothing_at_all_is_no_incident() -> None:
    assert diagnose([], [], ns(1)) is None
    assert diagnose([], [process(0), process(1)], ns(200)) is None


@pytest.mark.parametrize("ends", [[-15, -15], [-2, -2], [143, -15], [130, 130], [-15], [-1, -15, -15, -15]])
def test_ending_the_whole_job_by_signal_is_no_incident(ends: list[int]) -> None:
    processes = [process(r, "killed" if code < 0 else "exited", code, 100 + r / 1000, world=len(ends)) for r, code in enumerate(ends)]
    assert diagnose([], processes, ns(200)) is None
    assert diagnose([], [*processes[:-1], process(len(ends) - 1, world=len(ends))], ns(200)) is None


def test_control_c_is_no_incident_though_a_rank_saw_its_peer_go() -> None:
    stopped = failure(who(0), 100, "KeyboardInterrupt", severity=WARN)
    assert diagnose([stopped, lost_peer(1, 100.02)], [process(0, "raised", 1, 101), process(1, "raised", 1, 101)], ns(200)) is None
    assert diagnose([stopped], [process(0, "raised", 1, 101), process(1)], ns(200)) is None


def test_one_rank_ended_by_sigterm_while_the_other_loses_it_is_an_incident() -> None:
    verdict = judged([lost_peer(0, 100.05)], [process(0, "killed", -15, 101), process(1, "killed", -15, 100)])
    assert facts(verdict) == ("process_death", "ambiguous", 1, [0])
    assert verdict.candidate
    late = judged([lost_peer(0, 100)], [process(0, "raised", 1, 101), process(1, "killed", -15, 100.1)])  # seen a moment after it was felt
    assert (facts(late), seconds(late.onset_ns)) == (("process_death", "ambiguous", 1, [0]), 100)
    assert judged([lost_peer(0, 100)], [process(0, "raised", 1, 100.2), process(1, "killed", -15, 100.3)]).category == "peer_loss"


def test_a_failure_before_control_c_is_an_incident() -> None:
    records = [failure(who(1), 90, "ValueError", "x"), failure(who(0), 100, "KeyboardInterrupt", severity=WARN)]
    assert facts(judged(records, [process(0, "raised", 1, 100), process(1, "raised", 1, 91)]))[:3] == ("program_error", "root_cause", 1)


def test_an_exception_that_training_outlived_does_not_explain_a_later_death() -> None:
    records = [failure(who(1), 60, "ValueError", "retried", step=20), step(who(1), 90, 39), death(who(1), 100, -9)]
    verdict = judged(records, [process(0), process(1, "killed", -9, 100)])
    assert facts(verdict)[:3] == ("process_death", "ambiguous", 1)
    assert seconds(verdict.onset_ns) == 100


def test_a_failed_run_of_a_sweep_does_not_explain_the_next_ones_failure() -> None:
    records = [failure(who(1, run=1), 60, "ValueError", "first run", step=5), failure(who(1, run=2), 100, "KeyError", "second run", step=3)]
    verdict = judged(records, [process(0, run=2), process(1, "raised", 1, 101, run=2, step=3)])
    assert (verdict.category, seconds(verdict.onset_ns)) == ("program_error", 100)


def test_a_thread_that_failed_is_no_incident_by_itself() -> None:
    assert diagnose([failure(who(1), 100, "ValueError", "x", seen_by="thread", severity=ERROR)], [process(0), process(1)], ns(200)) is None


def test_a_crash_after_the_run_had_ended_well_says_so() -> None:
    verdict = judged([ended(who(1), 99)], [process(0, "clean", 0, 99.5), process(1, "killed", -11, 100)])
    assert "after its run had ended well" in verdict.summary


# Workers.


def test_a_worker_that_was_killed_is_the_cause_of_its_ranks_failure() -> None:
    lost = failure(who(1), 100.2, "RuntimeError", "DataLoader worker (pid(s) 4711) exited unexpectedly", stack=TORCH_STACK)
    worker = process(1, "killed", -9, 100, span="f" * 16, role="worker", step=None)
    verdict = judged([lost], [process(0), process(1, "raised", 1, 101), worker])
    assert (verdict.category, verdict.role, verdict.culprit.rank, seconds(verdict.onset_ns)) == ("process_death", "ambiguous", 1, 100)
    assert "a worker process of rank 1 was killed (SIGKILL)" in verdict.summary
    assert verdict.symptoms == []


def test_what_torch_says_of_a_killed_worker_is_enough() -> None:
    lost = failure(who(1), 100.2, "RuntimeError", "DataLoader worker (pid 4711) is killed by signal: Killed. ", stack=TORCH_STACK)
    verdict = judged([lost], [process(0), process(1, "raised", 1, 101)])
    assert facts(verdict)[:3] == ("host_oom", "ambiguous", 1)
    assert "is killed by signal: Killed" in verdict.summary and "ran out" not in verdict.summary


def test_what_a_workers_exception_was_is_told() -> None:
    trace = "Original Traceback (most recent call last):\n  File 'x.py', line 1, in f\nKeyError: 'missing sample'\n"
    told = f"Caught KeyError in DataLoader worker process 0.\n{trace}"
    verdict = judged([failure(who(1), 100, "KeyError", told, stack=TORCH_STACK)], [process(0), process(1)])
    assert facts(verdict)[:3] == ("data_pipeline", "root_cause", 1)
    assert "in DataLoader worker process 0. KeyError: 'missing sample'" in verdict.summary


@pytest.mark.parametrize("code", [0, 1, None, -9, -15])
def test_a_workers_end_alone_is_no_incident(code: int | None) -> None:
    worker = process(1, "exited" if code is not None and code >= 0 else "killed", code, 100, span="f" * 16, role="worker")
    assert diagnose([], [process(0), process(1), worker], ns(200)) is None


# Two nodes read as one.


def test_a_cause_on_another_node_wins_over_the_symptoms_here() -> None:
    records = [lost_peer(0, 100.1, node="a"), failure(who(1, "b"), 100, "ValueError", "x")]
    verdict = judged(records, [process(0, node="a"), process(1, node="b")])
    assert facts(verdict) == ("program_error", "root_cause", 1, [0])
    assert verdict.culprit.node == "b"
    assert verdict.summary.startswith("rank 1 on b failed")


def test_a_node_whose_clock_is_ahead_is_not_taken_for_the_later_one() -> None:
    ahead = 3.0
    steps = [step(who(r, "ab"[r]), 60 + n + (ahead if r else 0), n) for n in range(40) for r in (0, 1)]
    records = [*steps, failure(who(1, "b"), 100 + ahead, "ValueError", "the cause"), failure(who(0, "a"), 100.5, "KeyError", "the consequence")]
    verdict = judged(records, [process(0, node="a"), process(1, node="b")])
    assert verdict.culprit.rank == 1
    assert "b by +3000 ms" in verdict.reason and "to within" in verdict.reason


def test_clocks_that_cannot_be_compared_are_said_to_be_so() -> None:
    records = [failure(who(1, "b"), 100.03, "ValueError", "x"), lost_peer(0, 100.1, node="a")]
    assert "taken to agree within 50 ms" in judged(records, [process(0, node="a"), process(1, node="b")]).reason


# Whatever comes in.


RECORDS = st.builds(
    lambda rank, at, kind, message: failure(who(rank), at, kind, message),
    st.integers(0, 3),
    st.floats(0, 200),
    st.sampled_from(["ValueError", "RuntimeError", "KeyboardInterrupt", "a.B", "", "torch.OutOfMemoryError"]),
    st.sampled_from(["", GLOO, "x", "CUDA out of memory"]) | st.text(),
)
PROCESSES = st.builds(
    lambda rank, ending, code, at: process(rank, ending, code, None if ending == "running" else at),
    st.integers(0, 3),
    st.sampled_from(["running", "clean", "raised", "killed", "exited", "unknown"]),
    st.none() | st.integers(-64, 255),
    st.floats(0, 200),
)


@given(st.lists(RECORDS, max_size=6), st.lists(PROCESSES, max_size=4))
def test_any_records_and_processes_have_a_verdict_or_none(records: list[Record], processes: list[Process]) -> None:
    verdict = diagnose(records, processes, ns(300))
    again = diagnose(list(reversed(records)), list(reversed(processes)), ns(300))
    assert (verdict is None) == (again is None)
    if verdict is not None:
        assert verdict.summary and verdict.reason
        assert verdict.culprit.rank not in verdict.symptoms
        assert set(verdict.evidence) <= {record.id for record in records}


def test_a_process_that_left_with_a_code_was_gone_before_its_peers_could_say_so() -> None:
    """The kernel closes its sockets first and tells of its end last."""
    processes = [process(0, "raised", 1, 11.0), process(1, "exited", 7, 10.2)]
    verdict = diagnose([lost_peer(0, 10.0), death(who(1), 10.2, 7)], processes, ns(12))
    assert verdict is not None
    assert verdict.culprit.rank == 1
    assert verdict.onset_ns == ns(10.0)
