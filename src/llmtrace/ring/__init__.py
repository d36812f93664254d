"""The ring: records in shared memory that outlive the process that wrote them, whatever ended it."""

from .create import create_ring
from .layout import Frame, GroupState, Header, Reading, RingError
from .reader import RingReader, find_rings
from .writer import RingWriter

__all__ = ["Frame", "GroupState", "Header", "Reading", "RingError", "RingReader", "RingWriter", "create_ring", "find_rings"]
