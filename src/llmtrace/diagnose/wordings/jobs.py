"""Schedulers, launchers, advice, and last of all the exceptions of programs."""

from __future__ import annotations

from typing import Final

from .wording import says

_HEAD = r"^(?>(?:\S*?\[[^\]\n]{0,80}\]:? ?|(?:ERROR|CRITICAL|FATAL)[: ](?:[\w.]+:)? ?|[\d:.,T/Z+-]+ ){0,6})"
"""What stands before an exception's name in a log: a rank, times, a level, a logger. Atomic: no going back over it."""

JOBS: Final = (
    says(
        "node_loss",
        "root_cause",
        "a node went away",
        r"DUE TO NODE FAILURE|[Nn]ode failure on|NodeNotReady|Node \S+ (?:is )?not ready|[Kk]ubelet stopped posting node status",
        r"NODE_FAIL|[Nn]odes? \S+ not responding|NodeLost|(?:[Nn]ode \S+ (?:is )?)unreachable|(?:[Nn]ode \S+ (?:is )?)marked dead",
    ),
    says(
        "scheduler",
        "root_cause",
        "the scheduler ended the job, and says why",
        r"CANCELLED AT .*DUE TO (?:TIME LIMIT|PREEMPTION|JOB REQUEUE)|DUE TO (?:TIME LIMIT|PREEMPTION)|DeadlineExceeded",
        r"active longer than specified deadline|TERM_RUNLIMIT|exceeded (?:its )?(?:wall ?time|time limit|run limit)",
        r"PBS: job killed: walltime|Preempt(?:ed|ing) (?:by|in order|pod|to accommodate)|preempted by (?:a |pod|job)",
        r"BackoffLimitExceeded|Job .* exceeded (?:run|time) ?limit",
    ),
    says(
        "scheduler",
        "symptom",
        "somebody, or the scheduler, told the job to stop",
        r"Received \d+ death signal|SignalException: Process \d+ got signal|got signal: \d+|[Cc]aught signal SIG\w+",
        r"[Rr]eceived (?:signal )?SIG(?:TERM|USR[12]|INT|HUP)|SIGTERMException|this job is (?:preempted|timed-out|timed out)",
        r"Bypassing signal|Handling auto-requeue signal",
        r"slurmstepd: error: \*\*\* (?:STEP|JOB) \S+ ON \S+ CANCELLED|CANCELLED AT \d{4}|Job step aborted|Stopping container|got SIGTERM",
        r"Force Terminated job|task \d+: Terminated|task \d+: Cancelled|JOB NOT ENDING WITH SIGNALS",
    ),
    says(
        "process_death",
        "ambiguous",
        "a process was ended by a signal: by whom is not said",
        r"exitcode ?: -(?:9|11|4|8)\b|\(exitcode: -(?:9|11|4|8)\)|Signal (?:9|11|4|8) \(SIG\w+\) received|[Ss]egmentation fault",
        r"srun: error: .*: tasks? [\d,-]+: (?:Killed|Segmentation|Bus|Aborted)|died with <Signals\.SIG(?:KILL|SEGV|BUS|ILL)",
        r"terminated with signal SIG(?:KILL|SEGV)|exits with return code = -(?:9|11)|was killed by signal",
    ),
    says(
        "process_death",
        "symptom",
        "a process was aborted after an error that was said before",
        r"\(exitcode: -6\)|died with <Signals\.SIGABRT|terminated with signal SIGABRT|exits with return code = -6",
    ),
    says(
        "launcher_summary",
        "symptom",
        "the launcher reports what it saw of its processes: often the victims",
        r"Sending process \d+ closing signal|ChildFailedError|Root Cause \(first observed failure\)|\(exitcode: -?\d+\) local_rank",
        r"exitcode ?: -?\d+ \(pid|failed \(exitcode|Unable to shutdown process|forcefully exit(?:ing|ting) via|forcefully kill",
        r"Worker group .{0,40}(?:FAILED|failed)|(?:worker|process) group.{0,40}(?:restart|failed)",
        r"srun: (?:error: .*(?:Exited with exit code|Terminated)|Terminating|launch)|ProcessExitedException|ProcessRaisedException",
        r"CalledProcessError|exits with return code|Killing subprocess|Main process received SIG|Primary job +terminated",
        r"mpirun (?:noticed|detected)|mpiexec.{0,30}(?:noticed|detected)|\[.*launch\.py.*(?:return code|Killing)",
        r"worker .{0,40}(?:exited with|failed with) (?:exit )?code|Detected .{0,30}child process .{0,20}(?:terminated|failed)",
        r"\[default\] worker group|(?:[Tt]he (?:node|actor|worker) .{0,40}) has died|(?:[Tt]he (?:node|actor|worker) .{0,40}) has failed",
        r"RayActorError|ActorDiedError",
    ),
)

LAST: Final = (
    says(
        "advice_text",
        "benign",
        "advice that is printed beside an error, or always",
        r"might be asynchronously reported|so the stacktrace below might be incorrect|consider passing CUDA_LAUNCH_BLOCKING",
        r"TORCH_USE_CUDA_DSA|try setting max_split_size_mb|expandable_segments|To enable traceback see|avoid fragmentation",
        r"See documentation for Memory Management|--- Logging error ---",
        r"You can (?:(?:increase|enable|disable|suppress) )(?:\S+ ){0,3}(?:by|with|this)\b|[Yy]ou may want to|FlightRecorder is disabled",
        r"TORCH_NCCL_\w+(?: \(\w+\))? to |Setting OMP_NUM_THREADS|hint: |[Tt]his typically indicates",
        r"[Tt]his can potentially cause a hang|Please (?:try|consider|make sure|set|see|check)|Warning: |UserWarning|FutureWarning",
        r"DeprecationWarning|set NCCL_DEBUG=|NCCL_DEBUG=(?:INFO|WARN) for details|[Rr]un with NCCL_DEBUG",
    ),
    says(
        "program_error",
        "root_cause",
        "an exception of the program's own code",
        *(rf"{_HEAD}(?:[A-Za-z_]\w*\.)*[A-Z]\w*{ending}(?:: |:$|$)" for ending in ("Error", "Exception", "Failure", "Exceeded", "NotFound", "Timeout")),
        *(rf"{_HEAD}{name}(?:: |:?$)" for name in ("Exception", "queue\\.Empty", "queue\\.Full")),
        r"\[rank\d+\]:? (?:[A-Za-z_]\w*\.)*[A-Z]\w*(?:Error|Exception): ",
    ),
)
