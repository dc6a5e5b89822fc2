"""Mechanisms: frozen public parameters with their code and their price."""

from ostraka.mechanisms.argmax import GNMax, LNMax
from ostraka.mechanisms.screen import Threshold

__all__ = ["GNMax", "LNMax", "Threshold"]
