"""Nodes' clocks: how far apart they are, judged by what the ranks did together, and how well that is known.

Ranks that train together end a step within the time of one collective, so the same step's end on two nodes is one moment seen
by two clocks. Where there are not enough common steps the clocks are taken as they are.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from statistics import median

import msgspec

from ..names import STEP
from ..record import Record

COMMON_STEPS = 5
"""Fewer common steps say nothing: one slow step would be taken for a clock's error."""

UNKNOWN_NS = 50_000_000
"""How well two nodes' clocks are taken to agree where nothing says better: NTP over a data centre's network keeps within that."""

SAME_NODE_NS = 2_000_000
"""Two processes of one node share a clock; what remains is the time between an event and its record."""


class Clocks(msgspec.Struct, frozen=True):
    """By how many nanoseconds each node's clock is ahead of the first node's, and the residual of that estimate."""

    ahead_ns: dict[str, int] = {}
    residual_ns: int = SAME_NODE_NS
    steps: int = 0

    def common_ns(self, node: str, time_ns: int) -> int:
        """A node's time in the first node's clock."""
        return time_ns - self.ahead_ns.get(node, 0)

    @property
    def note(self) -> str:
        """For the verdict's reason; empty where one clock counts."""
        if not self.ahead_ns:
            return ""
        if not self.steps:
            return f"the nodes' clocks are taken to agree within {self.residual_ns / 1e6:.0f} ms"
        ahead = ", ".join(f"{node} by {ns / 1e6:+.0f} ms" for node, ns in sorted(self.ahead_ns.items()) if ns)
        return f"clocks compared by {self.steps} common steps to within {self.residual_ns / 1e6:.0f} ms" + (f": ahead {ahead}" if ahead else "")


def compare(records: Iterable[Record], nodes: Iterable[str]) -> Clocks:
    """The clocks of these nodes against the first of them, by name."""
    names = sorted(set(nodes))
    if len(names) < 2:
        return Clocks()
    ends = _step_ends(records)
    reference = ends.get(names[0], {})
    differences = {node: _differences(reference, ends.get(node, {})) for node in names[1:]}
    if min(map(len, differences.values())) < COMMON_STEPS:
        return Clocks(dict.fromkeys(names, 0), UNKNOWN_NS)
    return _clocks(names[0], differences)


def _clocks(first: str, differences: Mapping[str, list[int]]) -> Clocks:
    middles = {node: int(median(values)) for node, values in differences.items()}
    residual_ns = max(int(median([abs(value - middles[node]) for value in values])) for node, values in differences.items())
    residual_ns = max(residual_ns, SAME_NODE_NS)
    ahead = {node: ns if abs(ns) > 3 * residual_ns else 0 for node, ns in middles.items()}
    return Clocks({first: 0, **ahead}, residual_ns, min(map(len, differences.values())))


def _step_ends(records: Iterable[Record]) -> Mapping[str, Mapping[tuple[int, int], int]]:
    """By node: when each (run, step) ended, in that node's clock; of its ranks the middle one."""
    times: defaultdict[str, defaultdict[tuple[int, int], list[int]]] = defaultdict(lambda: defaultdict(list))
    for record in records:
        if record.name == STEP and record.step is not None:
            times[record.identity.node][record.identity.run, record.step].append(record.time_ns)
    return {node: {key: int(median(ns)) for key, ns in steps.items()} for node, steps in times.items()}


def _differences(reference: Mapping[tuple[int, int], int], other: Mapping[tuple[int, int], int]) -> list[int]:
    return [other[key] - reference[key] for key in reference.keys() & other.keys()]
