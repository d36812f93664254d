"""What to do next: what commands are for, and hints by what broke and how the culprit ended."""

from __future__ import annotations

from typing import Final

ADVICE: Final[dict[str, tuple[str, str]]] = {
    "why.same": ("this view in a terminal", "在终端中查看此页内容"),
    "why.line": ("the line that failed", "出错的代码行"),
    "why.exit": ("where it may have exited", "查找可能的退出位置"),
    "why.kernel": ("the kernel", "内核日志"),
    "why.kernel_of": ("the kernel of {node}", "{node} 的内核日志"),
    "why.culprit": ("all lines of {who}", "{who} 的全部日志"),
    "why.last_steps": ("the last steps", "最后几步"),
    "why.every_line": ("every line", "全部日志"),
    "why.numbers": ("steps and numbers", "训练步与指标"),
    "why.follow": ("follow it", "持续跟踪"),
    "why.program": ("for a program", "供程序读取"),
    "hint.left": (
        "It exited by itself with code {code}: look for the exit({code}) or os._exit({code}) in its code, and at what it wrote to stderr last.",
        "它以退出码 {code} 自行退出：请在代码中查找 exit({code}) 或 os._exit({code})，并查看它最后写到 stderr 的内容。",
    ),
    "hint.crashed": (
        "It crashed in native code{signal}: an extension, a driver or a kernel. The stack in its last lines, or a core dump (coredumpctl), says where.",
        "它在原生代码中崩溃{signal}：可能是扩展模块、驱动或 kernel。崩溃位置见最后几行日志中的调用栈，或 core dump（coredumpctl）。",
    ),
    "hint.killed": (
        "It left no word of its own. Ask on its node who sent the signal: the kernel (out of memory?), the scheduler, a person, or its own program.",
        "它自己没有留下任何信息。请到所在节点上查清是谁发出了信号：内核（是否内存不足？）、调度系统、人为，还是程序自身。",
    ),
    "hint.asked": (
        "Somebody asked it to end{signal}: the scheduler (sacct or kubectl describe says), its launcher, or a person.",
        "它收到了结束请求{signal}：可能来自调度系统（用 sacct 或 kubectl describe 查看）、启动器，或人为操作。",
    ),
    "hint.unseen": (
        "Nobody saw how it ended: ask its node's kernel log, and the scheduler.",
        "没有人看到它如何结束：请查看所在节点的内核日志和调度系统记录。",
    ),
    "hint.signal": (" ({signal})", "（{signal}）"),
    "hint.gpu_oom": (
        "Compare this batch's shapes with the steps before; then allocated against reserved (fragmentation) in the evidence.",
        "先对比这个 batch 与之前各步的张量形状；再对比证据中的已分配与已保留显存（碎片化）。",
    ),
    "hint.host_oom": (
        "Compare the size that was asked for with what a step needs: a batch or sequence far too long asks at one go, a leak grows from step to step.",
        "对比申请的大小与一步正常所需：过长的 batch 或序列会一次申请过多，内存泄漏则会逐步增长。",
    ),
    "hint.too_large": (
        "One request was too large by itself, whatever was free: look at the shapes on the line that asked, not for a leak.",
        "单次申请本身就过大，与剩余多少无关：请检查申请处代码行的张量形状，而不是查找泄漏。",
    ),
    "hint.grown": (
        "The request was small beside what the process held: the memory had filled before. Look for what grows from step to step (a leak).",
        "这次申请相对进程已占用的内存很小：内存此前已被占满。请查找逐步增长的部分（泄漏）。",
    ),
    "hint.nothing": ("Nothing to do.", "无需处理。"),
    "hint.host_oom_killed": (
        "The kernel killed it for memory: its log names the limit (the host's or a cgroup's). Is the growth in its memory a leak?",
        "内核因内存不足杀死了它：内核日志会指出是哪个上限（主机还是 cgroup）。其内存增长是否是泄漏？",
    ),
    "hint.process_death": ("Read its last lines, then its node's kernel log.", "先看它的最后几行日志，再看所在节点的内核日志。"),
    "hint.ended_well": (
        "It ended well while the others had not: does every rank do the same number of steps?",
        "它已正常结束而其他 rank 还没有：各 rank 的步数是否相同？",
    ),
    "hint.program_error": ("Read its last lines: what it says of the error is all there is.", "查看它的最后几行日志：关于这个错误只有这些信息。"),
    "hint.raised": (
        "Open the line named above; the traceback is the whole story unless other ranks had other data.",
        "打开上面指出的代码行；除非各 rank 的数据不同，traceback 已说明全部问题。",
    ),
    "hint.gpu_program_error": (
        "A kernel failed, and later than it was launched: repeat with CUDA_LAUNCH_BLOCKING=1 to see the line that launched it.",
        "某个 kernel 执行失败，且报错晚于启动：设置 CUDA_LAUNCH_BLOCKING=1 重跑，即可看到启动它的代码行。",
    ),
    "hint.gpu_hardware": (
        "Look at the node's kernel log for Xid events, and take the GPU out of service until dcgmi diag has passed.",
        "在该节点的内核日志中查找 Xid 事件；在 dcgmi diag 通过之前停用这块 GPU。",
    ),
    "hint.nvlink": (
        "nvidia-smi nvlink --status and -e on that node; take it out of service where errors grow.",
        "在该节点上运行 nvidia-smi nvlink --status 和 -e；若错误计数增长，请停用该节点。",
    ),
    "hint.interconnect": (
        "Look at the links of that node (ibstat, rdma link, ethtool -S), then at its switch.",
        "检查该节点的链路（ibstat、rdma link、ethtool -S），再检查其交换机。",
    ),
    "hint.device_unavailable": (
        "Does nvidia-smi on that node list the device, and does somebody else hold it?",
        "该节点上 nvidia-smi 能否列出该设备？是否被其他进程占用？",
    ),
    "hint.collective_stall": (
        "Ask what the culprit does while the others wait: py-spy dump --pid PID on its node.",
        "查看其他 rank 等待时故障 rank 在做什么：在其节点上运行 py-spy dump --pid PID。",
    ),
    "hint.collective_mismatch": (
        "Compare the code paths of the ranks: one of them took a branch, or a batch, that the others did not.",
        "对比各 rank 的代码路径：其中一个走了不同的分支，或处理了不同的 batch。",
    ),
    "hint.peer_loss": ("The rank that was lost said nothing here: look at its node.", "断开的 rank 在这里没有留下信息：请查看它所在的节点。"),
    "hint.rendezvous": (
        "Do all nodes reach MASTER_ADDR and its port, and were all of them started?",
        "所有节点能否连通 MASTER_ADDR 及其端口？是否全部已启动？",
    ),
    "hint.data_pipeline": (
        "Look at the DataLoader's workers and at the file or shard read last.",
        "检查 DataLoader 的 worker，以及最后读取的文件或分片。",
    ),
    "hint.storage": (
        "Look at the file system named in the evidence: full, read-only, or slow for every job?",
        "检查证据中指出的文件系统：是否已满、只读，或对所有任务都变慢？",
    ),
    "hint.host_shm": (
        "df -h /dev/shm; a container's default is 64 MB, DataLoader workers need more.",
        "运行 df -h /dev/shm；容器默认只有 64 MB，DataLoader 的 worker 需要更多。",
    ),
    "hint.scheduler": (
        "Somebody asked the job to end; nothing in it broke. sacct or kubectl describe says who.",
        "任务是被要求结束的，本身没有出错。用 sacct 或 kubectl describe 查看是谁。",
    ),
    "hint.eviction": (
        "The node wanted its resources back: kubectl describe pod, or the scheduler's log, says which.",
        "节点收回了资源：用 kubectl describe pod 或调度系统日志查看是哪种资源。",
    ),
    "hint.numerics": ("Look at the loss and the learning rate in the steps before.", "查看之前各步的 loss 和学习率。"),
    "hint.straggler": (
        "Compare its numbers with the other ranks': its data, its GPU's clock and temperature, its neighbours on the node.",
        "与其他 rank 对比：它的数据、GPU 频率与温度，以及同节点的其他进程。",
    ),
    "hint.node_loss": ("Is the node up? Its console and the scheduler know more than it can say itself.", "节点是否在线？其控制台和调度系统掌握更多信息。"),
    "hint.threshold": (
        "Training goes on: look at the numbers and decide whether it should.",
        "训练仍在继续：请查看指标，决定是否应当继续。",
    ),
    "hint.unknown": (
        "Nothing here explains it: read the last lines of every rank, then the node's kernel log.",
        "现有信息无法解释：请查看每个 rank 的最后几行日志，再看节点的内核日志。",
    ),
}
