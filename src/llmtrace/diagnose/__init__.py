"""Diagnosis, pure: records and processes in, a verdict out. No clock, no file, no network."""

from .attribution import Verdict, diagnose
from .catalogue import Classification, classify

__all__ = ["Classification", "Verdict", "classify", "diagnose"]
