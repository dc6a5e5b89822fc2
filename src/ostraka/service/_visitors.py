"""Limits by address for connections and requests without a valid key."""

from __future__ import annotations

import ipaddress
import math
import time
from collections import Counter, OrderedDict
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

__all__ = ["Network", "Visitors", "networks"]

Network = ipaddress.IPv4Network | ipaddress.IPv6Network
_REMEMBERED = 20_000  # addresses whose rates are known
_IPV6_PREFIX = 64  # one customer's addresses are one address


class Connection(Protocol):
    """A connection that can be dropped."""

    def drop(self) -> None:
        """End it now, without a reply."""
        ...


class Visitors:
    """Connections without a valid key so far, and the request rate of each address.

    A new connection is always taken. Where there are too many of strangers, an older one is dropped:
    first one that was answered already, then the one that waits longest. So a client with a valid key
    is served, as its connection is no stranger's from its first request on.

    Parameters
    ----------
    most : int
        Connections of strangers in all.
    share : float in (0, 1]
        The part of them that one address may have, unless it is a proxy's.
    rate, burst : float and int
        Requests without a valid key: so many a second, and so many at once, for each address.
    proxies : sequence of networks
        Addresses whose ``X-Forwarded-For`` counts.
    """

    def __init__(
        self,
        *,
        most: int = 2_000,
        share: float = 0.5,
        rate: float = 20.0,
        burst: int = 200,
        proxies: Sequence[Network] = (),
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._most, self._each = most, max(1, int(share * most))
        self._rate, self._burst, self._clock, self._proxies = rate, float(burst), clock, tuple(proxies)
        self._waiting: OrderedDict[Connection, str] = OrderedDict()
        self._answered: OrderedDict[Connection, str] = OrderedDict()
        self._count: Counter[str] = Counter()
        self._level: OrderedDict[str, tuple[float, float]] = OrderedDict()
        self.dropped = 0

    def __len__(self) -> int:
        return len(self._waiting) + len(self._answered)

    @property
    def crowded(self) -> bool:
        """Return whether a connection without a key should be closed after its reply."""
        return len(self) > self._most // 2

    def arrived(self, connection: Connection, peer: str) -> None:
        """Register a new connection, and drop another one if there are too many."""
        self._waiting[connection] = peer
        self._count[peer] += 1
        if self._count[peer] > self._each and not self._is_proxy(peer):
            self._drop(peer)
        elif len(self) > self._most:
            self._drop(None)

    def answered(self, connection: Connection) -> None:
        """Record a request without a key: its connection is dropped before those without any request."""
        peer = self._waiting.pop(connection, None)
        if peer is not None:
            self._answered[connection] = peer

    def left(self, connection: Connection) -> None:
        """Forget a connection that has ended or has shown a valid key."""
        for kind in (self._waiting, self._answered):
            peer = kind.pop(connection, None)
            if peer is not None:
                self._count[peer] -= 1
                if not self._count[peer]:
                    del self._count[peer]

    def may_ask(self, address: str) -> bool:
        """Return whether an address may make one more request without a valid key now."""
        now = self._clock()
        level, then = self._level.pop(address, (self._burst, now))
        level = min(self._burst, level + (now - then) * self._rate)
        granted = level >= 1
        self._level[address] = (level - 1 if granted else level), now
        if len(self._level) > _REMEMBERED:
            self._level.popitem(last=False)
        return granted

    @property
    def wait(self) -> int:
        """Return the whole seconds until a refused address may ask again."""
        return math.ceil(1 / self._rate)

    def address(self, peer: str, forwarded: Sequence[bytes]) -> str:
        """Return the client's address: the peer's, or the one that a trusted proxy reports."""
        claimed = [each.strip() for line in forwarded for each in line.decode("latin-1").split(",")]
        address = peer
        while claimed and self._is_proxy(address):
            address = claimed.pop()
        return _grouped(address)

    def _is_proxy(self, address: str) -> bool:
        try:
            found = ipaddress.ip_address(address)
        except ValueError:
            return False
        return any(found in network for network in self._proxies)

    def _drop(self, peer: str | None) -> None:
        for kind in (self._answered, self._waiting):
            for connection, address in kind.items():
                if peer in (None, address):
                    self.dropped += 1
                    self.left(connection)
                    connection.drop()
                    return


def networks(names: Sequence[str]) -> list[Network]:
    """Parse networks such as 10.0.0.0/8 or ::1."""
    try:
        return [ipaddress.ip_network(name) for name in names]
    except ValueError as error:
        raise ValueError(f"proxy must be an address or a network such as 10.0.0.0/8: {error}") from None


def _grouped(address: str) -> str:
    try:
        found = ipaddress.ip_address(address)
    except ValueError:
        return "unreadable"
    if found.version == 6:
        return str(ipaddress.ip_network((found, _IPV6_PREFIX), strict=False))
    return str(found)
