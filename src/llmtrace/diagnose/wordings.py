"""The catalogue's table: what failures are called in the lines that jobs, drivers, kernels and schedulers print.

Order matters, the first that fits wins: sayings that contain another's words come before it, what is specific before what is
general. Sources of the wordings: pytorch/c10 and aten, NVIDIA/nccl, facebookincubator/gloo, NVIDIA's Xid catalogue
(docs.nvidia.com/deploy/xid-errors), linux mm/oom_kill.c, slurm's slurmstepd and srun, kubelet's eviction manager.
"""

from __future__ import annotations

from typing import Final

import msgspec


class Wording(msgspec.Struct, frozen=True):
    """One kind of saying: what it means, and the regular expressions (any of them, anywhere, ^ at each line's start)."""

    category: str
    role: str
    reason: str
    patterns: tuple[str, ...]


def _says(category: str, role: str, reason: str, *patterns: str) -> Wording:
    return Wording(category, role, reason, patterns)


_HEAD = r"^(?:\S*\[[^\]\n]{0,80}\]:? ?|(?:ERROR|CRITICAL|FATAL)[: ](?:[\w.]+:)? ?|[\d:.,T/ Z+-]{8,40}(?:ERROR|CRITICAL|FATAL)? ?:? ?){0,5}"
"""What stands before an exception's name in a log: a rank, times, a level, a logger."""

_XID = r"NVRM: Xid \([^)]*\): "

_FIRST: Final = (
    # Said on the way out, or all the time: alarming words, no failure.
    _says(
        "teardown_noise",
        "benign",
        "said while a process ends; nothing failed by it",
        r"destroy_process_group\(\) was not called|process group has NOT been destroyed",
        r"watchdog got stuck for \d+ ?(?:seconds|milliseconds|ms) without making progress",
        r"can only test a child process|Exception ignored in|leaked (?:semaphore|shared_memory|folder) objects",
        r"DataLoader worker \(pid\(?s?\)? [\d, ]+\) is killed by signal: (?:Terminated|Interrupt)",
        r"NCCL INFO .*(?:Abort COMPLETE|Destroy COMPLETE|Connection closed by localRank)",
        r"CUDA error: driver shutting down|driver shutting down|cudaErrorCudartUnloading",
        r"sys\.meta_path is None, Python is likely shutting down|can't register atexit after shutdown|cannot schedule new futures after interpreter shutdown",
    ),
    _says(
        "numerics",
        "benign",
        "a loss scaler backs off: normal while it is rare",
        r"OVERFLOW!.*Skipping step|Gradient overflow\.?\s+Skipping step|[Ss]kipping (?:step|update|iteration).*(?:overflow|loss scale)|reducing loss scale to",
    ),
    _says("interconnect", "benign", "a warning of the adapter's power budget, common and harmless", r"Detected insufficient power on the PCIe slot"),
    _says("gpu_hardware", "benign", "errors that the hardware corrected", r"NVRM: Xid \([^)]*\): 121\b", r"PCIe Bus Error: severity=Corrected", r"\bCorrected error\b.*\bEDAC\b|EDAC .*\bCE\b memory"),
    # GPU memory.
    _says("collective_stall", "symptom", "a size read from a broadcast that never arrived: look at the timeout before it", r"Tried to allocate more than 1EB"),
    _says(
        "gpu_oom",
        "root_cause",
        "the GPU's memory was used up",
        r"\b(?:CUDA|HIP|XPU|MPS(?: backend)?|NPU|ROCm|GPU|device) out of memory",
        r"\bOutOfMemoryError: (?!.*(?:Task was killed|Java|heap))(?!.*Ran out of input)",
        r"(?:CUDA|HIP) error: out of memory|CUDA runtime error \(2\)|cuda runtime error \(2\)|cudaErrorMemoryAllocation|CUDA_ERROR_OUT_OF_MEMORY|hipErrorOutOfMemory",
        r"CUDNN_STATUS_ALLOC_FAILED|CUBLAS_STATUS_ALLOC_FAILED|CUSOLVER_STATUS_ALLOC_FAILED|CUSPARSE_STATUS_ALLOC_FAILED|CUFFT_ALLOC_FAILED",
        r"RESOURCE_EXHAUSTED: .*(?:allocat|[Oo]ut of memory|HBM)|Ran out of memory in memory space hbm|Allocator \(GPU_\d+_bfc\) ran out of memory|OOM when allocating tensor",
        r"NCCL WARN Cuda failure '?(?:2 )?'?out of memory|Cuda failure.{0,12}out of memory",
        r"No available memory for the cache blocks|is larger than the maximum number of tokens that can be stored in KV cache",
        r"synStatus.{0,4}(?:8|=8|OUT_OF_DEVICE_MEMORY)\b.*(?:[Mm]emory)|Allocation failed for size.*(?:HBM|workspace)",
    ),
    # GPU hardware, links and drivers, as the kernel and the runtime tell them.
    _says("nvlink", "ambiguous", "an NVLink event that the hardware survived", _XID + r"14[4-9],.*\bNon-?fatal\b", _XID + r"150,.*\bNon-?fatal\b", r"SXid \([^)]*\): \d+, Non-?fatal"),
    _says(
        "nvlink",
        "root_cause",
        "an NVLink between GPUs failed",
        _XID + r"(?:74|14[4-9]|150)\b",
        r"SXid \([^)]*\): \d+",
        r"CUDA error: uncorrectable NVLink error|uncorrectable NVLink|cudaErrorNvlinkUncorrectable|NVLink: fatal error|nvlink.{0,40}(?:training failed|down unexpectedly)",
    ),
    _says("gpu_hardware", "ambiguous", "GPU memory was repaired or counts errors: not fatal at once", _XID + r"(?:63|92)\b"),
    _says("gpu_hardware", "symptom", "the driver says what an earlier error asks for", _XID + r"154\b", r"GPU [Rr]ecovery [Aa]ction changed"),
    _says(
        "gpu_hardware",
        "root_cause",
        "the GPU's hardware or firmware failed",
        _XID + r"(?:4[0267]|48|5[4-9]|60|61|62|64|65|66|7[3579]|8[0-9]|9[0134567]|110|118|119|12[02-7]|13[0-6]|138|139|14[0-3]|15[1-35-9]|16\d|17[01])\b",
        r"[Gg][Pp][Uu] has fallen off the bus|GPU is lost|GPU lost|Unable to determine the device handle for [Gg][Pp][Uu]",
        r"[Uu]ncorrectable (?:volatile |SRAM |DRAM )?ECC|ECCUncorrectable|DOUBLE BIT ECC|[Dd]ouble[- ][Bb]it ECC|ECC_UNCORRECTABLE|ECC errors? .*uncontained",
        r"NVRM: .*(?:GPU Board Serial Number|RmInitAdapter failed|GSP (?:RPC|task) timeout|krcWatchdog|rpcRmApi\w+: GSP)",
        r"CUDA error: (?:hardware stack error|unrecoverable hardware|system is in an? (?:unrecoverable|error) state)|cudaErrorHardwareStackError|CUDA_ERROR_(?:ECC_UNCORRECTABLE|HARDWARE_STACK)",
        r"amdgpu.*(?:ring \w+ timeout|GPU reset begin|[Uu]ncorrectable hardware|RAS poison|GPU fault|lost from bus)|HW Exception by GPU node",
        r"AER: .*(?:Uncorrected \(Fatal\)|severity=Uncorrected)|PCIe Bus Error: severity=Uncorrect|\[Hardware Error\].*(?:[Uu]ncorrected|fatal)|EDAC .*\bUE\b",
    ),
    _says(
        "gpu_program_error",
        "ambiguous",
        "the GPU saw a faulty access or instruction: mostly the program's, at times the hardware's",
        _XID + r"(?:8|11|13|31|32|43|6[89]|70|109|137)\b",
    ),
    _says("gpu_program_error", "symptom", "the driver cleaned up after a process that had ended or failed", _XID + r"45\b"),
    _says("gpu_hardware", "ambiguous", "an Xid event that the catalogue does not know", _XID + r"\d+"),
    _says(
        "device_unavailable",
        "root_cause",
        "the process could not have the device",
        r"(?:CUDA-capable|CUDA) device\(?s?\)?(?: is/are| are| is)? ?busy or unavailable|busy or unavailable|cudaErrorDevicesUnavailable|all CUDA-capable devices are busy",
        r"No CUDA GPUs are available|no CUDA-capable device is detected|invalid device ordinal|No (?:HIP|XPU) (?:GPUs|devices) are available",
        r"CUDA driver initialization failed|CUDA unknown error - this may be due to|CUDA initialization: |Found no NVIDIA driver|CUDA driver version is insufficient",
        r"Driver/library version mismatch|NVIDIA-SMI has failed because|Failed to initialize NVML|system not yet initialized|cudaErrorSystemNotReady|forward compatibility was attempted",
        r"Device acquire failed|Device already acquired|Unable to initialize backend '?(?:tpu|cuda|TPU)|TPU is already in use|The TPU.*in use by process|Failed to acquire (?:HPU|device|the device)",
        r"hipErrorNoDevice|HIP error: no ROCm-capable|No such device.*(?:/dev/nvidia|/dev/kfd|/dev/accel)",
    ),
    # What a program did on the GPU.
    _says("gpu_program_error", "symptom", "an assertion failed on the device: the line that names it is the cause", r"device-side assert(?:ion)? triggered|cudaErrorAssert\b|CUDA_ERROR_ASSERT"),
    _says("gpu_program_error", "root_cause", "an assertion in a kernel names its condition", r"\.cuh?:\d+: .*: block: \[\d+,\d+,\d+\], thread: \[.*Assertion .* failed"),
    _says(
        "gpu_program_error",
        "ambiguous",
        "a library on the GPU failed: build, memory or hardware",
        r"CUDNN_STATUS_(?!ALLOC_FAILED|SUCCESS)[A-Z_]+|CUBLAS_STATUS_(?!ALLOC_FAILED|SUCCESS)[A-Z_]+|CUSOLVER_STATUS_[A-Z_]+_(?:FAILED|ERROR)|MIOPEN_STATUS|miopenStatus|CUFFT_(?:INTERNAL_ERROR|EXEC_FAILED)",
        r"unspecified launch failure|cudaErrorLaunchFailure|the launch timed out and was terminated|unable to find an engine to execute this computation|Unable to find a valid cuDNN algorithm",
    ),
    _says(
        "gpu_program_error",
        "root_cause",
        "a kernel of the program did something that is not allowed",
        r"illegal memory access|illegal instruction was encountered|misaligned address|invalid program counter|an illegal barrier|cudaErrorIllegal|CUDA_ERROR_ILLEGAL|invalid address space",
        r"no kernel image is available|invalid device function|invalid configuration argument|too many resources requested for launch|PTX (?:JIT|was compiled)|invalid resource handle",
        r"(?:CUDA|HIP) error: (?!out of memory|uncorrectable|driver shutting)|(?:cuda|CUDA|hip) runtime error \(\d+\)|HSA_STATUS_ERROR|Memory access fault by GPU node|HIP error",
        r"MODULE:PT_BRIDGE (?:Exception|[Ss]yn)|\bERR\d{5}\b.*(?:aicore|AICPU)|aicore (?:exception|error|execution)|triton.*(?:OutOfResources|CompilationError)",
    ),
    _says("gpu_program_error", "symptom", "a graph failed on this device; another rank names the fault", r"Graph compile failed\.? ?synStatus|synStatus ?\d* ?\[?Generic failure"),
)

_COLLECTIVES: Final = (
    _says(
        "collective_mismatch",
        "root_cause",
        "ranks ran different collectives, and the line says which",
        r"(?:lagging|dead|mismatched).{0,30}ranks that caused the desync|finished collective #\d+, but didn't join collective #\d+|joined collective #\d+.*but.*(?:didn't|did not)",
        r"Detected mismatch between collectives on ranks|Collectives differ in the following aspects|CollectiveFingerPrint.*but Rank|mismatched collective",
        r"Mismatch in (?:collective|input|the number of|size)|different (?:collective|tensor) (?:operation|shapes?) (?:across|on) (?:ranks|processes)|ranks? (?:is|are) running (?:different )?collective",
        r"op\.preamble\.length <= op\.nbytes",
    ),
    _says("collective_stall", "root_cause", "ranks that did not come to a barrier are named", r"Ranks? [\d, ]+ failed to pass monitoredBarrier|monitoredBarrier in \d+ ?ms"),
    _says("peer_loss", "symptom", "the store's host went away", r'Failed to check the "?should dump"? flag', r"TCPStore server has shut down too early"),
    _says(
        "collective_stall",
        "symptom",
        "a collective did not end in time: the rank that did not come is the cause",
        r"Watchdog caught collective operation timeout|collective operation timeout|Heartbeat monitor timed out|detected by watchdog at work|Some NCCL operations have failed or timed out",
        r"To avoid data inconsistency, we are taking the entire process down|(?:Received|Observed).{0,20}dump signal|First PG on this rank to signal dumping|Timeout at (?:NCCL|collective)",
        r"Timed out waiting \d+ ?ms for (?:recv|send)|Application timeout caused pair closure|failed to pass monitoredBarrier|received errors while waiting for send/recv|monitored ?[Bb]arrier",
        r"WorkNCCL\(.*(?:ran for|timed out)|NCCL communicator was aborted|NCCL error.{0,40}(?:timed? ?out|timeout)|Work (?:ran for|timed out after) \d+|watchdog (?:timeout|hang)",
        r"EI0002|HCCL.{0,40}(?:[Tt]ime ?out)|notify wait timeout|RCCL.{0,40}timed? ?out",
    ),
    _says(
        "collective_mismatch", "root_cause", "the communicator was set up in a way that cannot be right", r"Duplicate GPU detected|ncclInvalidUsage|ncclInvalidArgument|NCCL.*[Ii]nvalid (?:usage|argument)"
    ),
    # Networks.
    _says(
        "interconnect",
        "root_cause",
        "a network adapter or port failed",
        r"NET/IB ?: .*async (?:fatal )?event|Got async (?:fatal )?event|local catastrophic error|port error|IBV_EVENT_(?:PORT_ERR|DEVICE_FATAL|QP_FATAL)",
        r"mlx[45]_(?:core|ib).*(?:[Ll]ink [Dd]own|health compromised|device's health|firmware.*(?:error|dead|fatal)|synd 0x|Fatal error|assert_var|cmd.*timeout|teardown)|(?:ib|eth|ens|bond|roce)\w*: (?:[Ll]ink is [Dd]own|link down|NIC Link is Down)",
        r"ibv_(?:modify_qp|create_qp|reg_mr\w*|create_cq|open_device|poll_cq)[\w() ]* failed|Call to ibv_\w+ failed|[Nn]o route to host|Network is (?:unreachable|down)|Bootstrap : no socket interface found|NET/Socket ?: no (?:usable )?interface",
        r"(?:libfabric|efa).*(?:[Uu]nreachable|device (?:removed|failed))|NETDEV WATCHDOG.*transmit queue.*timed out",
    ),
    _says(
        "interconnect",
        "symptom",
        "a transfer to a peer failed: the peer, or the way to it",
        r"Got completion (?:from peer|with error|with status)|status=1?\d opcode=|vendor err \d+|transport retry counter exceeded|RNR retry|Work Request Flushed|WC_RETRY_EXC|retry exceeded",
        r"NET/(?:OFI|Libfabric|IB).*(?:[Cc]ompleted with error|Unresponsive receiver|failed|error)|Request.*completed with error",
    ),
    _says("interconnect", "ambiguous", "NCCL met an error of the system or the network that it does not name", r"ncclSystemError|unhandled system error|ncclUnhandledCudaError|unhandled cuda error|ncclInternalError|NCCL.*[Ii]nternal check failed|NCCL error"),
)

_RENDEZVOUS: Final = (
    _says(
        "rendezvous",
        "root_cause",
        "the processes could not come together",
        r"RendezvousTimeoutError|EADDRINUSE|[Aa]ddress already in use|failed to listen on any local network address|failed to bind to",
        r"Name or service not known|Temporary failure in name resolution|nodename nor servname|cannot be retrieved \(gai error",
        r"Error initializing torch\.distributed using|environment variable .{0,30}(?:RANK|WORLD_SIZE|MASTER_ADDR|MASTER_PORT).{0,30} expected, but not set|world_size.{0,30}(?:mismatch|does not match|is inconsistent)",
    ),
    _says(
        "peer_loss",
        "symptom",
        "a node no longer reaches the store: its host went away",
        r"has failed to (?:send a keep-alive heartbeat|shutdown the rendezvous|send a keep-alive)",
    ),
    _says(
        "rendezvous",
        "symptom",
        "the other side did not come: look at the host that is named",
        r"client socket has (?:timed out|failed to connect)|Rendezvous(?:Connection|Closed|State|Graceful\w*|)Error|[Rr]endezvous.{0,60}(?:timed out|failed|closed)|failed to connect to .{0,80}(?:29\d\d\d|errno)",
        r"waiting for clients\. \d+/\d+ clients joined|(?:wait timeout|[Tt]imeout waiting).{0,40}(?:key|ms)|connect\(\) timed out|but store->get\('?\w+'?\) got error: (?:[Ss]ocket [Tt]imeout|wait timeout|Timed out)",
        r"connectFullMesh failed|Gloo connect\w* (?:failed|timed out)|[Ss]ocket Timeout|DistStoreError.{0,40}[Tt]imed out|[Bb]arrier.{0,30}store.{0,40}timed out|Timed out after \d+ ?(?:seconds|s|ms) waiting",
    ),
    # A peer has gone. The wording of gloo, NCCL, TCPStore and sockets, never of an application's own client.
    _says(
        "peer_loss",
        "symptom",
        "a peer's connection ended: the peer is the cause",
        r"Connection closed by (?:remote )?peer \[|Connection closed by (?:remote )?peer\b.{0,60}(?:rank|localRank|<\d+>|\.cc:)|(?:Read|Write) error \[.*\]:\d+: |gloo/transport/.*(?:[Cc]onnection|error|closed|peer|timeout)",
        r"NCCL WARN .*(?:[Cc]onnection (?:reset|refused|closed|timed out)|Broken pipe)|Net ?: Connection closed|socketProgress\w*:? .*(?:failed|closed)|Call to (?:recv|send|connect)\w* .*failed",
        r"Failed to recv, got 0 bytes|Did the remote server shutdown or crash|recvValue failed|sendBytes failed|recvBytes failed|TCPStore.*(?:[Bb]roken pipe|[Cc]onnection (?:reset|refused|was)|closed)|\[c10d\].*(?:Broken pipe|[Cc]onnection (?:reset|refused|closed))",
        r"ncclRemoteError|remote process exit(?:ing|ed)? prematurely|NCCL.*(?:remote process|peer).*(?:exited|closed|died)|got error: (?:Connection reset|Broken pipe|Connection was likely closed)",
        r"Distributed?(?:Network|Backend|Store)Error.*(?:[Cc]onnection|[Bb]roken pipe)|Dist(?:Network|Store)Error: ",
        r"^(?:\S*\[[^\]\n]*\]:? ?)?(?:RuntimeError: )?(?:\[Errno \d+\] )?(?:Connection (?:closed|reset) by (?:remote )?peer|Broken pipe)\.?$",
    ),
    _says("collective_stall", "symptom", "an operation of the process group failed", r"DistBackendError|torch\.distributed\.DistError|NCCL watchdog thread terminated"),
)

_HOST: Final = (
    _says(
        "host_oom",
        "cause_confirmation",
        "the kernel, the scheduler or the kubelet says that memory ran out",
        r"[Mm]emory cgroup out of memory|Out of memory: Kill(?:ed)? process|oom-kill:|invoked oom-killer|oom_reaper: reaped|oom_kill_process|\boom[-_ ]kill event|killed by the cgroup out-of-memory handler",
        r"(?:task|tasks|step|job)\b.{0,40}: Out Of Memory|[Ee]xceeded (?:job|step) memory limit|exceeded memory limit.*being killed|OOM Killed|\bOUT_OF_MEMORY\b|\bOOMKilled\b|OOMKilling|systemd-oomd.*[Kk]illed|earlyoom.*(?:sending|killing)",
        r"System OOM encountered|Memory limit exceeded.*(?:[Kk]ill)|memory\.max.{0,40}oom|killed due to (?:memory pressure|the node running low on memory|OOM)|ran out of memory.*(?:cgroup|container)|TERM_MEMLIMIT",
    ),
    _says(
        "host_shm",
        "root_cause",
        "shared memory (/dev/shm) was used up",
        r"Unexpected bus error encountered in worker|out of shared memory|insufficient shared memory|killed by signal: Bus error|unable to (?:write to|allocate|mmap|resize) .{0,60}(?:shm|shared memory)|shared memory segment.{0,80}(?:failed|error|No space)",
        r"Error while (?:creating|attaching to) shared memory segment|/dev/shm.{0,80}(?:No space left|too small|[Ff]ailed|full)|No space left on device.{0,40}/dev/shm|shm_open.{0,60}fail|unable to open shared memory object(?!.*Too many open)",
    ),
    _says("host_shm", "ambiguous", "SIGBUS: a mapped file or shared memory that is not there", r"exitcode ?: -7\b|Signal 7 \(SIGBUS\)|SIGBUS|Bus error"),
    _says(
        "host_oom",
        "root_cause",
        "the host had no memory to give",
        r"DefaultCPUAllocator: (?:can't|not enough|cannot) ?(?:allocate )?memory|DefaultCPUAllocator|\[Errno 12\]|Cannot allocate memory|\bENOMEM\b|(?:^|[\s.:])MemoryError\b|_ArrayMemoryError",
        r"Unable to allocate [\d.]+ [KMGT]i?B for an array|std::bad_alloc|Not enough memory|cannot allocate (?:memory|\d+ bytes)|mmap: (?:Cannot|Out of)|cudaHostAlloc.{0,40}out of memory|Java heap space",
        r"Task was killed due to the node running low on memory|realloc of size \d+ failed|malloc of size \d+ failed",
    ),
    _says(
        "host_oom",
        "ambiguous",
        "a process was killed, as the kernel does when memory runs out: nobody has said so yet",
        r"DataLoader worker \(pid\(?s?\)? [\d, ]+\) (?:is|was) killed by signal: Killed|A worker process managed by the executor was unexpectedly terminated|A process in the process pool was terminated abruptly",
        r"^(?:\S*: line \d+: )?\s*\d*\s*(?:Killed|已杀死|Getötet|Tué|Processus arrêté|Terminado \(killed\)|Ucciso|Morto|Убито|強制終了|죽었음|已终止)\b(?: +\S.*)?$",
        r"exit(?:ed with)?[ _](?:code|status)[:= ]+137\b|terminated with signal 9\b(?!.*exitcode)",
    ),
    # Storage and data.
    _says("eviction", "root_cause", "the node gave the pod up", r"The node was low on resource|The node had condition: \[|Pod ephemeral local storage usage exceeds|\bEvicted\b|TaintManagerEviction|ephemeral-storage.{0,60}exceeds|evicting pod|Usage of EmptyDir volume .* exceeds|[Ss]pot (?:instance )?interruption|[Ii]nstance (?:is being |was )?(?:preempted|reclaimed)|TERMINATE_ON_HOST_MAINTENANCE|[Pp]reemption notice"),
    _says(
        "data_pipeline",
        "root_cause",
        "loading the data failed",
        r"Too many open files|received \d+ items of ancdata|[Cc]aught \w+(?: \w+)? in (?:DataLoader|pin memory|replica) (?:worker|thread)|DataLoader timed out|cannot identify image file|UnidentifiedImageError",
        r"Trying to resize storage that is not resizable|tarfile\.ReadError|webdataset.*(?:[Ee]rror|[Ff]ailed)|StreamingDataset.*(?:[Ee]rror|[Tt]imed out)|DatasetGenerationError|zipfile\.BadZipFile|pyarrow\.lib\.Arrow\w+|ArrowInvalid|image file is truncated|Truncated File Read|num_samples should be a positive integer",
        r"huggingface\.co.{0,80}(?:[Mm]ax retries|[Tt]imed? ?out|[Cc]onnection)|datasets\.exceptions|Rank \d+ failed to get dataset",
    ),
    _says("process_death", "ambiguous", "a worker that loads data crashed in native code", r"DataLoader worker \(pid\(?s?\)? [\d, ]+\) (?:is|was) killed by signal: (?:Segmentation fault|Aborted|Floating|Illegal)"),
    _says("data_pipeline", "symptom", "a worker that loads data ended: why is said before", r"DataLoader worker \(pid\(?s?\)? [\d, ]+\) (?:exited unexpectedly|is killed|died)|Pin memory thread exited unexpectedly"),
    _says(
        "storage",
        "root_cause",
        "reading or writing files failed",
        r"\[Errno (?:2|5|13|16|17|20|21|22|26|27|28|30|36|39|40|107|108|110|112|116|121|122|123|126)\](?! Connection)|No space left on device|[Dd]isk quota exceeded|[Ii]nput/output error|Stale (?:NFS )?file handle|Read-only file system|Remote I/O error|Transport endpoint is not connected",
        r"PytorchStream(?:Writer|Reader) failed|inline_container\.cc|unexpected pos \d+ vs \d+|failed finding central directory|file in archive is not in a subdirectory|(?:checkpoint|archive|zip|file) (?:file )?(?:is |may be |appears )?corrupt(?:ed)?|SafetensorError|Error while deserializing header|unexpected EOF, expected",
        r"(?:NoSuchBucket|NoSuchKey|SlowDown|AccessDenied|RequestTimeout|ExpiredToken).{0,120}(?:operation|[Ss]3|bucket|calling)|botocore\.exceptions|google\.api_core\.exceptions|azure\.core\.exceptions|boto3\.exceptions|FSTimeoutError|FileNotFoundError|FileExistsError|PermissionError: \[|IsADirectoryError",
        r"LustreError|(?:nfs|lustre|gpfs|beegfs|ceph|fuse).{0,60}(?:not responding|timed out|evicted|stale|I/O error)|EXT4-fs error|XFS .*(?:[Cc]orruption|shutting down|error)|blk_update_request: .*error|I/O error, dev|nvme\w*: .*(?:I/O .*timeout|controller is down|aborting)|Buffer I/O error|No such file or directory|mount\.nfs: ",
        r"CheckpointException|Checkpoint.{0,60}(?:failed to (?:save|write|load)|is incomplete|not durable)|Failed to (?:save|write|load) checkpoint|hdf5.*(?:unable to|error)|pickle data was truncated|UnpicklingError|Ran out of input",
    ),
    _says("storage", "ambiguous", "a process waits in the kernel, mostly for a file system", r"blocked for more than \d+ seconds|hung_task"),
    _says(
        "numerics",
        "root_cause",
        "a loss or gradient was no finite number",
        r"(?i:\bloss\b.{0,60}\b(?:became|becomes|is|was|has|went|diverged to|=|:)\s*(?:infinite|nan|inf|non-?finite|not finite)\b.{0,60}(?:stop|abort|terminat|exit|iteration|rais|halt|at step|!|$))(?<!step_loss=nan)",
        r"(?i:found (?:an? )?(?:nan|inf|infs?|nans?)\b.{0,60}(?:grad|loss|forward|backward|parameter|input|output)|(?:grad\w*|loss|weights?|activations?|tensor|logits|output|input)\b.{0,60}\b(?:contains?|has|have|are|is) (?:`?(?:nan|inf|infinite|non-?finite)))",
        r"returned nan values in its|is non-finite, so it cannot be clipped|probability tensor contains either|Detected nan and/or inf values|(?:is|are) nan or inf|loss scale already at minimum|[Nn]on-finite (?:loss|grad\w*)|is not finite\. Previous best",
        r"FloatingPointError|found invalid values:|NaN or Inf found in|invalid value encountered in.*stopping|Minimum loss scale reached|NanDetector|Loss (?:exploded|diverged)|AnomalyDetected",
    ),
    _says(
        "process_death",
        "root_cause",
        "a process crashed in native code",
        r"\bsegfault at [0-9a-f]+ ip|general protection(?: fault)?\b.*(?:ip:|error:)|trap(?:s:)? (?:invalid opcode|divide error|int3)|traps: .* (?:trap|general protection)|Fatal Python error: (?:Segmentation fault|Bus error|Illegal instruction|Floating)",
        r"double free or corruption|free\(\): invalid|malloc\(\): |corrupted (?:size|double-linked)|munmap_chunk\(\)|stack smashing detected|\*\*\* SIG(?:SEGV|ILL|FPE) \(?@?|AddressSanitizer|pure virtual method called",
    ),
    _says("process_death", "symptom", "a process aborted itself after an error that was said before", r"terminate called (?:after throwing|without an active)|Fatal Python error: Aborted|exitcode ?: -6\b|Signal 6 \(SIGABRT\)|SIGABRT|\bAborted \(core dumped\)"),
)

_SCHEDULERS: Final = (
    _says("node_loss", "root_cause", "a node went away", r"DUE TO NODE FAILURE|[Nn]ode failure on|NodeNotReady|Node \S+ (?:is )?not ready|[Kk]ubelet stopped posting node status|NODE_FAIL|[Nn]odes? \S+ not responding|NodeLost|node .{0,40}(?:unreachable|marked dead|is dead|died)"),
    _says(
        "scheduler",
        "root_cause",
        "the scheduler ended the job, and says why",
        r"CANCELLED AT .*DUE TO (?:TIME LIMIT|PREEMPTION|JOB REQUEUE)|DUE TO (?:TIME LIMIT|PREEMPTION)|DeadlineExceeded|active longer than specified deadline|TERM_RUNLIMIT|exceeded (?:its )?(?:wall ?time|time limit|run limit)|PBS: job killed: walltime|Preempt(?:ed|ing) (?:by|in order|pod|to accommodate)|preempted by (?:a |pod|job)|BackoffLimitExceeded|Job .* exceeded (?:run|time) ?limit",
    ),
    _says(
        "scheduler",
        "symptom",
        "somebody, or the scheduler, told the job to stop",
        r"Received \d+ death signal|SignalException: Process \d+ got signal|got signal: \d+|[Cc]aught signal SIG\w+|[Rr]eceived (?:signal )?SIG(?:TERM|USR[12]|INT|HUP)|SIGTERMException|this job is (?:preempted|timed-out|timed out)|Bypassing signal|Handling auto-requeue signal",
        r"slurmstepd: error: \*\*\* (?:STEP|JOB) \S+ ON \S+ CANCELLED|CANCELLED AT \d{4}|Job step aborted|Stopping container|got SIGTERM|Force Terminated job|task \d+: (?:Terminated|Cancelled)|JOB NOT ENDING WITH SIGNALS",
    ),
    _says(
        "process_death",
        "ambiguous",
        "a process was ended by a signal: by whom is not said",
        r"exitcode ?: -(?:9|11|4|8)\b|\(exitcode: -(?:9|11|4|8)\)|Signal (?:9|11|4|8) \(SIG\w+\) received|[Ss]egmentation fault|srun: error: .*: tasks? [\d,-]+: (?:Killed|Segmentation|Bus|Aborted)|died with <Signals\.SIG(?:KILL|SEGV|BUS|ILL)|terminated with signal SIG(?:KILL|SEGV)|exits with return code = -(?:9|11)|SIGKILL|was killed by signal",
    ),
    _says("process_death", "symptom", "a process was aborted after an error that was said before", r"\(exitcode: -6\)|died with <Signals\.SIGABRT|terminated with signal SIGABRT|exits with return code = -6"),
    _says(
        "launcher_summary",
        "symptom",
        "the launcher reports what it saw of its processes: often the victims",
        r"Sending process \d+ closing signal|ChildFailedError|Root Cause \(first observed failure\)|\(exitcode: -?\d+\) local_rank|exitcode ?: -?\d+ \(pid|failed \(exitcode|Unable to shutdown process|forcefully exit(?:ing|ting) via|forcefully kill",
        r"Worker group .{0,40}(?:FAILED|failed)|(?:worker|process) group.{0,40}(?:restart|failed)|srun: (?:error: .*(?:Exited with exit code|Terminated)|Terminating|launch)|ProcessExitedException|ProcessRaisedException|CalledProcessError|exits with return code|Killing subprocess|Main process received SIG|Primary job +terminated|mpirun (?:noticed|detected)|mpiexec.{0,30}(?:noticed|detected)|\[.*launch\.py.*(?:return code|Killing)",
        r"worker .{0,40}(?:exited with|failed with) (?:exit )?code|Detected .{0,30}child process .{0,20}(?:terminated|failed)|\[default\] worker group|The (?:node|actor|worker) .{0,40}(?:died|has failed)|RayActorError|ActorDiedError",
    ),
)

_LAST: Final = (
    _says(
        "advice_text",
        "benign",
        "advice that is printed beside an error, or always",
        r"might be asynchronously reported|so the stacktrace below might be incorrect|consider passing CUDA_LAUNCH_BLOCKING|TORCH_USE_CUDA_DSA|try setting max_split_size_mb|expandable_segments|To enable traceback see|avoid fragmentation|See documentation for Memory Management|--- Logging error ---",
        r"You can (?:increase|enable|disable|set|suppress)|[Yy]ou may (?:want|need) to|FlightRecorder is disabled|TORCH_NCCL_\w+(?: \(\w+\))? to |Setting OMP_NUM_THREADS|hint: |This (?:typically|may|usually|can) (?:indicates?|be due|potentially)|this can potentially cause a hang|Please (?:try|consider|make sure|set|see|check)|Warning: |UserWarning|FutureWarning|DeprecationWarning|set NCCL_DEBUG=|NCCL_DEBUG=(?:INFO|WARN) for details|[Rr]un with NCCL_DEBUG",
    ),
    _says(
        "program_error",
        "root_cause",
        "an exception of the program's own code",
        _HEAD + r"(?:[A-Za-z_][\w]*\.)*(?!KeyboardInterrupt|SystemExit|StopIteration|GeneratorExit)[A-Z]\w*(?:Error|Exception|Failure|Exceeded|NotFound|Empty|Full|Timeout|Expired|Unpicklable)(?:: |:$|$)",
        r"\[rank\d+\]:? (?:[A-Za-z_]\w*\.)*[A-Z]\w*(?:Error|Exception): ",
    ),
)

WORDINGS: Final = (*_FIRST, *_COLLECTIVES, *_RENDEZVOUS, *_HOST, *_SCHEDULERS, *_LAST)

STEMS: Final = tuple(
    (
        "error err_ errno errcode fail memory nccl kill signal sig exit abort fatal exceed timed timeout connect socket device status invalid corrupt exception peer xid ecc "
        "expect mismatch close cannot caught denied died dead down lost evict preempt cancel termin unable rendezvous watchdog oom illegal assert overflow nan finite worker "
        "warn hint: shut trap stale reach busy block leak unexpected lustre nvm please cuda hip node collective shm truncated too hung barrier tcpstore mpi srun task "
        "process edac uncorrect amdgpu mlx net/ opcode segfault stop fault huggingface reset refused broken scale bus traceback stacktrace hccl rccl aer: aicore anomaly gloo group "
        "dump exhausted"
    ).split()
)
"""Every text that a rule fits holds one of these, in lower case."""
