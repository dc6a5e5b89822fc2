"""Service: teachers behind HTTP. Every label is paid for durably before it leaves."""

from ostraka.service.client import Client

__all__ = ["Client"]
