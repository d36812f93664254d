"""The catalogue's table: what failures are called in the lines that jobs, drivers, kernels and schedulers print.

Order matters, the first that fits wins: sayings that contain another's words come before it, what is specific before what is
general. Sources of the wordings: pytorch/c10 and aten, NVIDIA/nccl, facebookincubator/gloo, NVIDIA's Xid catalogue
(docs.nvidia.com/deploy/xid-errors), linux mm/oom_kill.c, slurm's slurmstepd and srun, kubelet's eviction manager.
"""

from typing import Final

from .gpu import GPU
from .host import HOST
from .jobs import JOBS, LAST
from .peers import COLLECTIVES, RENDEZVOUS
from .wording import Wording

WORDINGS: Final[tuple[Wording, ...]] = (*GPU, *COLLECTIVES, *RENDEZVOUS, *HOST, *JOBS, *LAST)

__all__ = ["WORDINGS", "Wording"]
