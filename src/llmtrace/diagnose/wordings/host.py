"""The host: memory, shared memory, data, storage, numbers, and native crashes."""

from __future__ import annotations

from typing import Final

from .wording import says

NOT_FINITE = ("NaN", "nan", "inf(?:inite|inity)?\\b", "Inf(?:inity)?\\b", "non-finite", "nonfinite", "not finite")
"""As numbers that are none are written."""

_LOSS_IS = r"\b(?:[Ll]oss(?:es)?)\b.{0,60}\b(?:became|becomes|is|was|has|went|diverged to|=|:)\s*"
_SO_END = r"(?:[Ss]top|[Aa]bort|[Tt]erminat|[Ee]xit|iteration|[Rr]ais|[Hh]alt|at step|!|\.?$)"
_TENSOR_HAS = r"(?:[Gg]rad\w*|[Ll]oss|[Ww]eights?|[Aa]ctivations?|[Tt]ensor|[Ll]ogits|[Oo]utput|[Ii]nput)\b.{0,60}\b(?:contains?|has|have|are|is) "

KILLED = ("Killed", "已杀死", "Getötet", "Tué", "Processus arrêté", "Terminado \\(killed\\)", "Ucciso", "Morto", "Убито", "強制終了", "죽었음")
"""What a shell says of a child that SIGKILL ended, in the languages of glibc's and bash's catalogues."""

HOST: Final = (
    says(
        "host_oom",
        "cause_confirmation",
        "the kernel, the scheduler or the kubelet says that memory ran out",
        r"[Mm]emory cgroup out of memory|Out of memory: Kill(?:ed)? process|oom-kill:|invoked oom-killer|oom_reaper: reaped",
        r"oom_kill_process|\boom[-_ ]kill event|killed by the cgroup out-of-memory handler",
        r"(?:task|tasks|step|job)\b.{0,40}: Out Of Memory|[Ee]xceeded (?:job|step) memory limit|exceeded memory limit.*being killed",
        r"OOM Killed|\bOUT_OF_MEMORY\b|\bOOMKilled\b|OOMKilling|systemd-oomd.*[Kk]illed|earlyoom.*(?:sending|killing)",
        r"System OOM encountered|Memory limit exceeded.*(?:[Kk]ill)|memory\.max.{0,40}oom",
        r"killed due to (?:memory pressure|the node running low on memory|OOM)|ran out of memory.*(?:cgroup|container)|TERM_MEMLIMIT",
    ),
    says(
        "host_shm",
        "root_cause",
        "shared memory (/dev/shm) was used up",
        r"Unexpected bus error encountered in worker|out of shared memory|insufficient shared memory|killed by signal: Bus error",
        r"unable to (?:write to|allocate|mmap|resize) .{0,60}(?:shm|shared memory)|shared memory segment.{0,80}(?:failed|error|No space)",
        r"Error while (?:creating|attaching to) shared memory segment|/dev/shm.{0,80}(?:No space left|too small|[Ff]ailed|full)",
        r"No space left on device.{0,40}/dev/shm|shm_open.{0,60}fail|unable to open shared memory object(?!.*Too many open)",
    ),
    says(
        "host_shm",
        "ambiguous",
        "SIGBUS: a mapped file or shared memory that is not there",
        r"exitcode ?: -7\b|Signal 7 \(SIGBUS\)|SIGBUS|Bus error",
    ),
    says(
        "host_oom",
        "root_cause",
        "an allocation of host memory was refused",
        r"DefaultCPUAllocator: (?:can't|not enough|cannot) ?(?:allocate )?memory|DefaultCPUAllocator|\[Errno 12\]|Cannot allocate memory",
        r"\bENOMEM\b|(?:^|[\s.:])MemoryError\b|_ArrayMemoryError",
        r"Unable to allocate [\d.]+ [KMGT]i?B for an array|std::bad_alloc|Not enough memory|cannot allocate (?:memory|\d+ bytes)",
        r"mmap: (?:Cannot|Out of)|cudaHostAlloc.{0,40}out of memory|Java heap space",
        r"Task was killed due to the node running low on memory|realloc of size \d+ failed|malloc of size \d+ failed",
    ),
    says(
        "host_oom",
        "ambiguous",
        "a process was killed, as the kernel does when memory runs out: nobody has said so yet",
        r"DataLoader worker \(pid\(?s?\)? [\d, ]+\) (?:is|was) killed by signal: Killed",
        r"A worker process managed by the executor was unexpectedly terminated|A process in the process pool was terminated abruptly",
        *(rf"^(?:\S*: line \d+: )?\s*\d*\s*{killed}(?:$|\s{{2,}}\S.*$)" for killed in KILLED),
        r"exit(?:ed with)?(?:[ _](?:code|status)[:= ]+)137\b|terminated with signal 9\b(?!.*exitcode)",
    ),
    # Storage and data.
    says(
        "eviction",
        "root_cause",
        "the node gave the pod up",
        r"The node was low on resource|The node had condition: \[|Pod ephemeral local storage usage exceeds|\bEvicted\b",
        r"TaintManagerEviction|ephemeral-storage.{0,60}exceeds|evicting pod|Usage of EmptyDir volume .* exceeds",
        r"[Ss]pot (?:instance )?interruption|[Ii]nstance (?:is being |was )?(?:preempted|reclaimed)|TERMINATE_ON_HOST_MAINTENANCE",
        r"[Pp]reemption notice",
    ),
    says(
        "data_pipeline",
        "root_cause",
        "loading the data failed",
        r"Too many open files|received \d+ items of ancdata",
        r"[Cc]aught \w+(?: \w+)? in (?:DataLoader|pin memory|replica) (?:worker|thread)|DataLoader timed out|cannot identify image file",
        r"UnidentifiedImageError",
        r"Trying to resize storage that is not resizable|tarfile\.ReadError|webdataset.*(?:[Ee]rror|[Ff]ailed)",
        r"StreamingDataset.*(?:[Ee]rror|[Tt]imed out)|DatasetGenerationError|zipfile\.BadZipFile|pyarrow\.lib\.Arrow\w+|ArrowInvalid",
        r"image file is truncated|Truncated File Read|num_samples should be a positive integer",
        r"huggingface\.co.{0,80}(?:[Mm]ax retries|[Tt]imed? ?out|[Cc]onnection)|datasets\.exceptions|Rank \d+ failed to get dataset",
    ),
    says(
        "process_death",
        "ambiguous",
        "a worker that loads data crashed in native code",
        r"DataLoader worker \(pid\(?s?\)? [\d, ]+\) (?:is|was) killed by signal: (?:Segmentation fault|Aborted|Floating|Illegal)",
    ),
    says(
        "data_pipeline",
        "symptom",
        "a worker that loads data ended: why is said before",
        r"DataLoader worker \(pid\(?s?\)? [\d, ]+\) (?:exited unexpectedly|is killed|died)|Pin memory thread exited unexpectedly",
    ),
    says(
        "storage",
        "root_cause",
        "reading or writing files failed",
        r"\[Errno (?:2|5|13|16|17|20|21|22|26|27|28|30|36|39|40|107|108|110|112|116|121|122|123|126)\](?! Connection)",
        r"No space left on device|[Dd]isk quota exceeded|[Ii]nput/output error|Stale (?:NFS )?file handle|Read-only file system",
        r"Remote I/O error|Transport endpoint is not connected",
        r"PytorchStream(?:Writer|Reader) failed|inline_container\.cc|unexpected pos \d+ vs \d+|failed finding central directory",
        r"file in archive is not in a subdirectory|(?:checkpoint|archive|zip|file) (?:file )?(?:is |may be |appears )?corrupt(?:ed)?",
        r"SafetensorError|Error while deserializing header|unexpected EOF, expected",
        r"An error occurred \(\w+\) when calling the \w+ operation|\bNoSuchBucket\b|\bNoSuchKey\b|botocore\.exceptions",
        r"google\.api_core\.exceptions|azure\.core\.exceptions|boto3\.exceptions|FSTimeoutError|FileNotFoundError|FileExistsError",
        r"PermissionError: \[|IsADirectoryError",
        r"LustreError|\bnfs: server \S+ not responding|(?i:lustre|gpfs|mmfs|beegfs|ceph|fuse).{0,60}not responding",
        r"(?i:lustre|gpfs|mmfs|beegfs|ceph|fuse).{0,60}timed out|EXT4-fs error|XFS .*(?:[Cc]orruption|shutting down|error)",
        r"blk_update_request: .*error|I/O error, dev|nvme\w*: .*(?:I/O .*timeout|controller is down|aborting)|Buffer I/O error",
        r"No such file or directory|mount\.nfs: ",
        r"CheckpointException|Checkpoint.{0,60}(?:failed to (?:save|write|load)|is incomplete|not durable)",
        r"Failed to (?:save|write|load) checkpoint|hdf5.*(?:unable to|error)|pickle data was truncated|UnpicklingError|Ran out of input",
    ),
    says("storage", "ambiguous", "a process waits in the kernel, mostly for a file system", r"blocked for more than \d+ seconds|hung_task"),
    says(
        "numerics",
        "root_cause",
        "a loss or gradient was no finite number",
        *(rf"{_LOSS_IS}{number}.{{0,60}}{_SO_END}" for number in NOT_FINITE),
        *(rf"(?:[Ff]ound (?:an? )?){number}s?\b.{{0,60}}(?:grad|loss|forward|backward|parameter|input|output)" for number in NOT_FINITE),
        *(rf"{_TENSOR_HAS}`?{number}" for number in NOT_FINITE),
        r"returned nan values in its|is non-finite, so it cannot be clipped|probability tensor contains either",
        r"Detected nan and/or inf values|(?:is|are) nan or inf|loss scale already at minimum|[Nn]on-finite (?:loss|grad\w*)",
        r"is not finite\. Previous best",
        r"FloatingPointError|found invalid values:|NaN or Inf found in|invalid value encountered in.*stopping|Minimum loss scale reached",
        r"NanDetector|Loss exploded|Loss diverged|loss has diverged|AnomalyDetected",
    ),
    says(
        "process_death",
        "root_cause",
        "a process crashed in native code",
        r"\bsegfault at [0-9a-f]+ ip|general protection(?: fault)?\b.*(?:ip:|error:)|trap(?:s:)? (?:invalid opcode|divide error|int3)",
        r"traps: .* (?:trap|general protection)|Fatal Python error: (?:Segmentation fault|Bus error|Illegal instruction|Floating)",
        r"double free or corruption|free\(\): invalid|malloc\(\): |corrupted (?:size|double-linked)|munmap_chunk\(\)",
        r"stack smashing detected|\*\*\* SIG(?:SEGV|ILL|FPE) \(?@?|AddressSanitizer|pure virtual method called",
    ),
    says(
        "process_death",
        "symptom",
        "a process aborted itself after an error that was said before",
        r"terminate called (?:after throwing|without an active)|Fatal Python error: Aborted|exitcode ?: -6\b|Signal 6 \(SIGABRT\)",
        r"SIGABRT|\bAborted \(core dumped\)",
    ),
)
