"""What the agent says of processes that end, and when it calls that an incident. Real processes, real deaths."""

from __future__ import annotations

import time

import pytest

from llmtrace.names import EXCEPTION_STACKTRACE, FAILURE, FAILURE_SEEN_BY, PROCESS_ENDING, PROCESS_EXIT_CODE, PROCESS_SIGNAL
from llmtrace.record import FATAL, INFO
from tests.support.agents import Rank, Seen, agent, position, until

SEEN = Seen()
SECOND_NS = 1_000_000_000


def finish(*ranks: Rank) -> None:
    for rank in ranks:
        rank.tell("end", "clean")
        rank.send("leave", 0)
        rank.popen.wait()


def test_a_killed_rank_is_a_death_and_an_incident_within_a_second(llmtrace_dirs) -> None:
    with Rank(0), Rank(1) as rank, agent():
        rank.tell("step", 40)
        rank.tell("log", 10)
        until(lambda: len(SEEN.processes()) == 2)
        killed_ns = time.time_ns()
        rank.send("kill")
        rank.popen.wait()  # reaped at once: the kernel alone still knows the code
        incident = until(SEEN.incidents, 2)[0]
        assert 0 <= incident.detected_ns - killed_ns < SECOND_NS
        assert 0 <= incident.onset_ns - killed_ns < SECOND_NS // 2
        assert incident.culprit.rank == 1
        assert incident.category == "process_death"
        assert (incident.window.start_ns, incident.window.end_ns) == (incident.onset_ns - 30 * SECOND_NS, incident.detected_ns + 5 * SECOND_NS)
        process = SEEN.process(rank.span_id)
        assert (process.ending, process.exit_code, process.last_step) == ("killed", -9, 40)
        assert process.ended_ns == incident.onset_ns
        (death,) = SEEN.deaths()
        assert death.id in incident.evidence
        assert death.severity == FATAL
        assert (death.attributes[PROCESS_SIGNAL], death.attributes[PROCESS_EXIT_CODE]) == ("SIGKILL", -9)
        assert SEEN.lines(rank.span_id)[-1] == "line 9"


@pytest.mark.parametrize("reaped", [True, False])
def test_an_exit_code_is_known_whether_the_parent_has_reaped_or_not(llmtrace_dirs, reaped: bool) -> None:
    with Rank(0) as rank, agent():
        rank.tell("log", 1)
        until(lambda: SEEN.processes())
        rank.send("leave", 7)
        if reaped:
            rank.popen.wait()
        until(SEEN.deaths)
        assert SEEN.process(rank.span_id).exit_code == 7
        assert SEEN.process(rank.span_id).ending == "exited"
        assert until(SEEN.incidents)[0].culprit.rank == 0


def test_after_a_clean_end_nothing_is_an_incident(llmtrace_dirs) -> None:
    with Rank(0) as one, Rank(1) as two, agent() as process:
        until(lambda: len(SEEN.processes()) == 2)
        one.tell("log", 3, 0, 17)  # errors in the log of a job that ends well
        finish(one, two)
        assert process.wait(timeout=10) == 0
        assert SEEN.incidents() == []
        assert [(p.ending, p.exit_code) for p in SEEN.processes()] == [("clean", 0), ("clean", 0)]
        assert {death.severity for death in SEEN.deaths()} == {INFO}


def test_a_clean_word_before_a_crash_at_exit_is_not_a_clean_end(llmtrace_dirs) -> None:
    with Rank(0) as rank, agent():
        until(lambda: SEEN.processes())
        rank.tell("end", "clean")
        rank.send("kill", 11)
        until(SEEN.deaths)
        assert (SEEN.process(rank.span_id).ending, SEEN.process(rank.span_id).exit_code) == ("killed", -11)


def test_the_onset_of_an_exit_with_a_code_is_its_own_word_not_the_end_of_its_teardown(llmtrace_dirs) -> None:
    with Rank(0) as rank, agent():
        until(SEEN.processes)
        rank.tell("log", 1)
        said_ns = time.time_ns()
        rank.tell("end", "clean")
        time.sleep(0.8)
        rank.send("leave", 1)
        incident = until(SEEN.incidents, 3)[0]
        assert abs(incident.onset_ns - said_ns) < 400_000_000
        assert incident.category == "process_death"


def test_an_exception_is_an_incident_before_its_process_is_dead(llmtrace_dirs) -> None:
    with Rank(0), Rank(1) as rank, agent():
        until(lambda: len(SEEN.processes()) == 2)
        failed_ns = int(rank.tell("fail", "ValueError", "bad batch 7f3a"))
        incident = until(SEEN.incidents, 2)[0]
        assert rank.popen.poll() is None
        assert incident.detected_ns - failed_ns < SECOND_NS
        assert abs(incident.onset_ns - failed_ns) < SECOND_NS // 10
        assert (incident.category, incident.culprit.rank) == ("program_error", 1)
        rank.tell("end", "raised")
        rank.send("leave", 1)
        rank.popen.wait()
        until(SEEN.deaths)
        assert SEEN.process(rank.span_id).ending == "raised"
        time.sleep(0.7)
        assert [i.id for i in SEEN.incidents()] == [incident.id]


def test_symptoms_wait_for_their_cause(llmtrace_dirs) -> None:
    with Rank(0) as victim, Rank(1) as culprit, agent():
        until(lambda: len(SEEN.processes()) == 2)
        victim.tell("fail", "RuntimeError", "[gloo] Connection closed by peer [127.0.0.1]:4711")
        time.sleep(0.2)
        assert SEEN.incidents() == []
        culprit.send("kill")
        culprit.popen.wait()
        incident = until(SEEN.incidents, 2)[0]
        assert incident.culprit.rank == 1
        until(lambda: SEEN.incidents()[0].symptoms == [0], 3)


def test_symptoms_without_a_cause_become_an_incident_after_half_a_second(llmtrace_dirs) -> None:
    with Rank(0) as rank, agent():
        until(lambda: SEEN.processes())
        failed_ns = int(rank.tell("fail", "RuntimeError", "[gloo] Connection closed by peer [127.0.0.1]:4711"))
        incident = until(SEEN.incidents, 3)[0]
        assert 0.45 * SECOND_NS < incident.detected_ns - failed_ns < 1.5 * SECOND_NS


def test_later_evidence_refines_the_incident_and_keeps_its_id_and_its_detection(llmtrace_dirs) -> None:
    with Rank(0) as victim, Rank(1) as culprit, agent():
        until(lambda: len(SEEN.processes()) == 2)
        culprit.tell("fail", "ValueError", "bad batch")
        first = until(SEEN.incidents, 2)[0]
        victim.tell("fail", "RuntimeError", "[gloo] Connection closed by peer [127.0.0.1]:4711")
        later = until(lambda: [i for i in SEEN.incidents() if i.symptoms == [0]], 3)[0]
        assert (later.id, later.detected_ns, later.onset_ns, later.culprit) == (first.id, first.detected_ns, first.onset_ns, first.culprit)
        assert len(SEEN.incidents()) == 1


def test_an_agent_that_takes_over_goes_on_with_the_incident_of_the_one_before(llmtrace_dirs) -> None:
    with Rank(0) as victim, Rank(1) as culprit:
        with agent():
            until(lambda: len(SEEN.processes()) == 2)
            culprit.tell("fail", "ValueError", "bad batch")
            first = until(SEEN.incidents, 2)[0]
        victim.tell("fail", "RuntimeError", "[gloo] Connection closed by peer [127.0.0.1]:4711")
        culprit.send("leave", 1)
        with agent():
            later = until(lambda: [i for i in SEEN.incidents() if i.symptoms == [0]], 3)[0]
            assert (later.id, later.detected_ns) == (first.id, first.detected_ns)
            time.sleep(0.7)
            assert len(SEEN.incidents()) == 1


def test_an_agent_that_takes_over_knows_the_symptoms_that_came_before_the_cause(llmtrace_dirs) -> None:
    with Rank(0) as victim, Rank(1) as culprit, Rank(2) as late:
        with agent():
            until(lambda: len(SEEN.processes()) == 3)
            victim.tell("fail", "RuntimeError", "[gloo] Connection closed by peer [127.0.0.1]:4711")
            time.sleep(0.1)
            culprit.send("kill")
            until(lambda: [i for i in SEEN.incidents() if i.symptoms == [0]], 3)
        with agent():
            late.send("leave", 1)
            incident = until(lambda: [i for i in SEEN.incidents() if 2 in i.symptoms], 3)[0]
            assert (incident.culprit.rank, incident.symptoms) == (1, [0, 2])


def test_training_that_goes_on_after_a_failure_makes_the_next_one_another_incident(llmtrace_dirs) -> None:
    with Rank(0) as rank, agent():
        rank.tell("step", 5)
        rank.tell("fail", "ValueError", "caught by the caller")
        until(SEEN.incidents, 2)
        for step in range(6, 10):
            rank.tell("step", step)
            time.sleep(0.3)
        rank.tell("fail", "KeyError", "another")
        until(lambda: len(SEEN.incidents()) == 2, 3)


def test_a_restart_is_another_attempt_and_its_failure_another_incident(llmtrace_dirs) -> None:
    with Rank(0, attempt="a1") as rank, agent():
        rank.tell("fail", "ValueError", "first")
        rank.send("leave", 1)
        rank.popen.wait()
        until(SEEN.incidents, 2)
        with Rank(0, attempt="a2") as again:
            again.tell("fail", "ValueError", "second")
            incidents = until(lambda: SEEN.incidents() if len(SEEN.incidents()) == 2 else [], 3)
            assert [incident.attempt for incident in incidents] == ["a1", "a2"]
            assert {incident.trace_id for incident in incidents} == {rank_trace(again)}


def rank_trace(rank: Rank) -> str:
    return SEEN.process(rank.span_id).identity.trace_id


@pytest.mark.parametrize("number", [2, 15])
def test_a_job_that_its_user_ends_is_no_incident(llmtrace_dirs, number: int) -> None:
    with Rank(0) as one, Rank(1) as two, agent() as process:
        until(lambda: len(SEEN.processes()) == 2)
        for rank in (one, two):
            rank.popen.send_signal(number)
        if number == 15:
            one.popen.wait()
        assert process.wait(timeout=10) == 0
        assert [p.exit_code for p in SEEN.processes()] == [-number, -number]
        assert SEEN.incidents() == []


def test_what_a_ctrl_c_leaves_behind_on_the_other_ranks_is_no_incident(llmtrace_dirs) -> None:
    with Rank(0) as one, Rank(1) as two, agent() as process:
        until(lambda: len(SEEN.processes()) == 2)
        one.tell("fail", "KeyboardInterrupt")
        two.tell("fail", "RuntimeError", "[gloo] Connection closed by peer [127.0.0.1]:4711")
        for rank in (one, two):
            rank.tell("end", "raised")
            rank.send("leave", 1)
        assert process.wait(timeout=10) == 0
        assert SEEN.incidents() == []


def test_a_dying_worker_is_reported_as_itself_and_is_no_failure_of_its_rank(llmtrace_dirs) -> None:
    with Rank(0) as rank, agent() as process:
        killed = rank.tell("worker", "kill").split()[1]
        ended = rank.tell("worker", "kill", "15").split()[1]
        done = rank.tell("worker", "leave", "0").split()[1]
        deaths = {death.identity.span_id: death for death in until(lambda: SEEN.deaths() if len(SEEN.deaths()) == 3 else [])}
        assert {death.identity.role for death in deaths.values()} == {"worker"}
        assert SEEN.process(killed).exit_code == -9
        assert deaths[killed].severity > deaths[ended].severity == deaths[done].severity == INFO
        assert SEEN.lines(killed) == ["line 0", "line 1", "line 2"]
        finish(rank)
        assert process.wait(timeout=10) == 0
        assert SEEN.incidents() == []


def test_what_faulthandler_wrote_becomes_the_failure_before_the_death(llmtrace_dirs) -> None:
    with Rank(1) as rank, agent():
        until(lambda: SEEN.processes())
        rank.send("fatal")
        rank.popen.wait()
        until(SEEN.deaths)
        (failure,) = [record for record in SEEN.records() if record.name == FAILURE]
        assert failure.attributes[FAILURE_SEEN_BY] == "faulthandler"
        assert "Segmentation fault" in str(failure.body)
        assert "in fatal" in str(failure.attributes[EXCEPTION_STACKTRACE])
        assert position(failure) < position(SEEN.deaths()[0])
        assert SEEN.process(rank.span_id).exit_code == -11
        assert until(SEEN.incidents)[0].culprit.rank == 1
        until(lambda: not list(llmtrace_dirs.rings.rglob("*.fatal")))


def test_a_fault_that_took_rank_and_agent_together_is_promoted_late_with_its_own_time(llmtrace_dirs) -> None:
    with Rank(0) as rank:
        rank.tell("step", 12)
        rank.tell("log", 20)
        killed_ns = time.time_ns()
        rank.send("kill")
        rank.popen.wait()
    time.sleep(1.5)
    with agent() as process:
        assert process.wait(timeout=10) == 0
    (incident,) = SEEN.incidents()
    assert abs(incident.onset_ns - killed_ns) < SECOND_NS // 2
    assert incident.detected_ns - killed_ns > 1.4 * SECOND_NS
    (death,) = SEEN.deaths()
    assert death.attributes[PROCESS_ENDING] == "unknown"
    assert PROCESS_EXIT_CODE not in death.attributes
    assert SEEN.process(rank.span_id).ending == "unknown"
    assert len(SEEN.lines(rank.span_id)) == 20
    assert list(llmtrace_dirs.rings.rglob("*.ring")) == []


def test_a_rank_that_ended_well_without_an_agent_is_not_promoted_to_an_incident(llmtrace_dirs) -> None:
    with Rank(0) as rank:
        rank.tell("log", 2)
        finish(rank)
    with agent() as process:
        assert process.wait(timeout=10) == 0
    assert SEEN.process(rank.span_id).ending == "clean"
    assert SEEN.incidents() == []


def test_a_ring_that_its_process_left_behind_ended_with_its_own_word(llmtrace_dirs) -> None:
    with Rank(0) as rank, agent():
        rank.tell("log", 2)
        second = rank.tell("again")
        rank.tell("log", 2)
        until(lambda: len(SEEN.processes()) == 2)
        rank.send("kill")
        rank.popen.wait()
        until(lambda: len(SEEN.deaths()) == 2)
        assert (SEEN.process(rank.span_id).ending, SEEN.process(rank.span_id).exit_code) == ("clean", None)
        assert (SEEN.process(second).ending, SEEN.process(second).exit_code) == ("killed", -9)


def test_a_ring_that_a_living_process_left_behind_is_removed_and_the_one_it_writes_to_is_not(llmtrace_dirs) -> None:
    with Rank(0) as rank, agent():
        rank.tell("log", 3)
        second = rank.tell("again")
        rank.tell("log", 4)
        until(lambda: len(list(llmtrace_dirs.rings.rglob("*.ring"))) == 1, 25)
        rank.tell("log", 2)
        until(lambda: len(SEEN.lines(second)) == 6)
        assert len(SEEN.lines(rank.span_id)) == 3
        assert (SEEN.process(rank.span_id).ending, SEEN.process(second).ending) == ("clean", "running")
        rank.send("kill")
        rank.popen.wait()
        until(lambda: SEEN.process(second).ending == "killed")
        assert SEEN.process(rank.span_id).ending == "clean"


def test_a_rank_that_died_before_it_could_describe_itself_is_still_reported(llmtrace_dirs) -> None:
    with Rank(0, described=False) as rank, agent():
        until(SEEN.all_processes)
        rank.send("kill")
        rank.popen.wait()
        incident = until(SEEN.incidents)[0]
        assert SEEN.process(rank.span_id).ending == "killed"
        assert len(incident.trace_id) == 32


def test_a_ring_left_by_a_fault_between_the_last_word_and_its_removal_is_not_told_twice(llmtrace_dirs) -> None:
    with Rank(0) as rank:
        ring = next(llmtrace_dirs.rings.rglob("*.ring"))
        rank.tell("log", 5)
        kept = ring.with_name("kept")
        kept.hardlink_to(ring)
        rank.send("kill")
        rank.popen.wait()
    with agent() as process:
        assert process.wait(timeout=10) == 0
    kept.rename(ring)
    with agent() as process:
        assert process.wait(timeout=10) == 0
    assert len(SEEN.deaths()) == 1
    assert len(SEEN.lines(rank.span_id)) == 5
    assert len(SEEN.incidents()) == 1
    assert not ring.exists()
