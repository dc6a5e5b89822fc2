"""Service: teachers behind HTTP. Every label is paid for durably before it leaves."""

from ostraka.service.client import Answer, Client, ServiceError

__all__ = ["Answer", "Client", "ServiceError"]
