"""The embedded store: SQLite, chunks of ring bytes as they are, bounded, exactly once."""

from .errors import JournalError
from .format import ALL_KINDS, DERIVED, FORMAT, INCIDENT_FLAG, KIND_BITS, STEP_NS, Chunk, Frame, RingRow, storable
from .reader import JournalReader
from .reading import description_of, process_of
from .writer import Journal, Transaction

__all__ = [
    "ALL_KINDS",
    "DERIVED",
    "FORMAT",
    "INCIDENT_FLAG",
    "KIND_BITS",
    "STEP_NS",
    "Chunk",
    "Frame",
    "Journal",
    "JournalError",
    "JournalReader",
    "RingRow",
    "Transaction",
    "description_of",
    "process_of",
    "storable",
]
