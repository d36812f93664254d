"""What ranks say of each other: collectives, the network, coming together, and peers that went away."""

from __future__ import annotations

from typing import Final

from .wording import says

COLLECTIVES: Final = (
    says(
        "collective_mismatch",
        "root_cause",
        "ranks ran different collectives, and the line says which",
        r"(?:lagging|dead|mismatched).{0,30}ranks that caused the desync|finished collective #\d+, but didn't join collective #\d+",
        r"joined collective #\d+.*but.*(?:didn't|did not)",
        r"Detected mismatch between collectives on ranks|Collectives differ in the following aspects|CollectiveFingerPrint.*but Rank",
        r"mismatched collective",
        r"Mismatch in (?:collective|input|the number of|size)",
        r"different (?:collective|tensor) (?:operation|shapes?) (?:across|on) (?:ranks|processes)",
        r"ranks? (?:is|are) running (?:different )?collective",
        r"op\.preamble\.length <= op\.nbytes",
    ),
    says(
        "collective_stall",
        "root_cause",
        "ranks that did not come to a barrier are named",
        r"Ranks? [\d, ]+ failed to pass monitoredBarrier|monitoredBarrier in \d+ ?ms",
    ),
    says(
        "peer_loss",
        "symptom",
        "the store's host went away",
        r'Failed to check the "?should dump"? flag',
        r"TCPStore server has shut down too early",
    ),
    says(
        "collective_stall",
        "symptom",
        "a collective did not end in time: the rank that did not come is the cause",
        r"Watchdog caught collective operation timeout|collective operation timeout|Heartbeat monitor timed out",
        r"detected by watchdog at work|Some NCCL operations have failed or timed out",
        r"To avoid data inconsistency, we are taking the entire process down|(?:Received|Observed).{0,20}dump signal",
        r"First PG on this rank to signal dumping|Timeout at (?:NCCL|collective)",
        r"Timed out waiting \d+ ?ms for (?:recv|send)|Application timeout caused pair closure|failed to pass monitoredBarrier",
        r"received errors while waiting for send/recv|monitored ?[Bb]arrier",
        r"WorkNCCL\(.*(?:ran for|timed out)|NCCL communicator was aborted|NCCL error.{0,40}(?:timed? ?out|timeout)|watchdog (?:timeout|hang)",
        r"EI0002|HCCL.{0,40}(?:[Tt]ime ?out)|notify wait timeout|RCCL.{0,40}(?:timed? ?out)",
    ),
    says(
        "collective_mismatch",
        "root_cause",
        "the communicator was set up in a way that cannot be right",
        r"Duplicate GPU detected|ncclInvalidUsage|ncclInvalidArgument|NCCL.*[Ii]nvalid (?:usage|argument)",
    ),
    # Networks.
    says(
        "interconnect",
        "root_cause",
        "a network adapter or port failed",
        r"NET/IB ?: .*async (?:fatal )?event|Got async (?:fatal )?event|local catastrophic error|port error",
        r"IBV_EVENT_(?:PORT_ERR|DEVICE_FATAL|QP_FATAL)",
        r"mlx[45]_\w+ .*(?:[Ll]ink [Dd]own|health compromised|device's health|firmware.*(?:error|dead|fatal))",
        r"mlx[45]_\w+ .*(?:synd 0x|Fatal error|assert_var|cmd.*timeout|teardown)",
        r"(?:ib|eth|en[sp]|bond|roce|hsn)\w*: (?:NIC )?(?:L|l)ink is (?:D|d)own|(?:ib|eth|en[sp]|bond|roce|hsn)\w*: link down",
        r"ibv_(?:modify_qp|create_qp|reg_mr\w*|create_cq|open_device|poll_cq)[\w() ]* failed|Call to ibv_\w+ failed|[Nn]o route to host",
        r"Network is (?:unreachable|down)|Bootstrap : no socket interface found|NET/Socket ?: no (?:usable )?interface",
        r"libfabric.*(?:[Uu]nreachable|failed)|\befa\b.*device (?:removed|failed)|NETDEV WATCHDOG.*transmit queue.*timed out",
    ),
    says(
        "interconnect",
        "symptom",
        "a transfer to a peer failed: the peer, or the way to it",
        r"Got completion (?:from peer|with error|with status)|status=1?\d opcode=|vendor err \d+|transport retry counter exceeded",
        r"RNR retry|Work Request Flushed|WC_RETRY_EXC|retry exceeded",
        r"NET/(?:OFI|Libfabric|IB).*(?:[Cc]ompleted with error|Unresponsive receiver|failed|error)|Request.*completed with error",
    ),
)

RENDEZVOUS: Final = (
    says(
        "rendezvous",
        "root_cause",
        "the processes could not come together",
        r"RendezvousTimeoutError|EADDRINUSE|[Aa]ddress already in use|failed to listen on any local network address|failed to bind to",
        r"Name or service not known|Temporary failure in name resolution|nodename nor servname|cannot be retrieved \(gai error",
        r"Error initializing torch\.distributed using",
        r"environment variable .{0,30}(?:RANK|WORLD_SIZE|MASTER_ADDR|MASTER_PORT).{0,30} expected, but not set",
        r"world_size.{0,30}(?:mismatch|does not match|is inconsistent)",
    ),
    says(
        "peer_loss",
        "symptom",
        "a node no longer reaches the store: its host went away",
        r"has failed to (?:send a keep-alive heartbeat|shutdown the rendezvous|send a keep-alive)",
    ),
    says(
        "rendezvous",
        "symptom",
        "the other side did not come: look at the host that is named",
        r"client socket has (?:timed out|failed to connect)|Rendezvous(?:Connection|Closed|State|Graceful\w*|)Error",
        r"[Rr]endezvous.{0,60}(?:timed out|failed|closed)|failed to connect to .{0,80}(?:29\d\d\d|errno)",
        r"waiting for clients\. \d+/\d+ clients joined|wait timeout after \d+ ?ms|[Tt]imeout waiting for (?:the )?key",
        r"connect\(\) timed out|but store->get\('?\w+'?\) got error: (?:[Ss]ocket [Tt]imeout|wait timeout|Timed out)",
        r"connectFullMesh failed|Gloo connect\w* (?:failed|timed out)|[Ss]ocket Timeout|DistStoreError.{0,40}[Tt]imed out",
        r"[Bb]arrier.{0,30}store.{0,40}timed out|Timed out after \d+ ?(?:seconds|s|ms) waiting",
    ),
    # A peer has gone. The wording of gloo, NCCL, TCPStore and sockets, never of an application's own client.
    says(
        "peer_loss",
        "symptom",
        "a peer's connection ended: the peer is the cause",
        r"Connection closed by (?:remote )?peer \[|Connection closed by (?:remote )?peer\b.{0,60}(?:rank|localRank|<\d+>|\.cc:)",
        r"(?:Read|Write) error \[.*\]:\d+: |gloo/transport/.*(?:[Cc]onnection|error|closed|peer|timeout)",
        r"NCCL WARN .*(?:[Cc]onnection (?:reset|refused|closed|timed out)|Broken pipe)|Net ?: Connection closed",
        r"socketProgress\w*:? .*(?:failed|closed)|Call to (?:recv|send|connect)\w* .*failed",
        r"Failed to recv, got 0 bytes|Did the remote server shutdown or crash|recvValue failed|sendBytes failed|recvBytes failed",
        r"TCPStore.*(?:[Bb]roken pipe|[Cc]onnection (?:reset|refused|was)|closed)",
        r"\[c10d\].*(?:Broken pipe|[Cc]onnection (?:reset|refused|closed))",
        r"ncclRemoteError|remote process exit(?:ing|ed)? prematurely|remote process exited or there was a network error",
        r"NCCL.*(?:remote process|peer).*(?:exited|closed|died)|got error: (?:Connection reset|Broken pipe|Connection was likely closed)",
        r"Distributed?(?:Network|Backend|Store)Error.*(?:[Cc]onnection|[Bb]roken pipe)|Dist(?:Network|Store)Error: ",
        *(
            rf"^(?:\S*\[[^\]\n]*\]:? ?)?(?:\w+Error: )?(?:\[Errno \d+\] )?{gone}\.?$"
            for gone in ("Connection closed by (?:remote )?peer", "Connection reset by peer", "Broken pipe", "Connection refused")
        ),
    ),
    says(
        "interconnect",
        "ambiguous",
        "NCCL met an error of the system or the network that it does not name",
        r"ncclSystemError|unhandled system error|ncclUnhandledCudaError|unhandled cuda error|ncclInternalError",
        r"NCCL.*[Ii]nternal check failed|NCCL error",
    ),
    says(
        "collective_stall",
        "symptom",
        "an operation of the process group failed",
        r"DistBackendError|torch\.distributed\.DistError|NCCL watchdog thread terminated",
    ),
)
