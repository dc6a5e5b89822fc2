"""Students: classifiers from public rows and released labels, and what they ask first."""

from ostraka.students.asking import least_sure, schedule, typical
from ostraka.students.distil import Distilled

__all__ = ["Distilled", "least_sure", "schedule", "typical"]
