"""Which of this machine's addresses a call offers to its client.

aioice asks one function of its own for them and has no setting, so that function is replaced here, once for the process.
A machine with no address but loopback (a laptop without a network) offers that: the browser on it must reach us. The UDP
ports are the system's choice (`net.ipv4.ip_local_port_range`): aioice binds to port 0 and offers no range.
"""

from __future__ import annotations

from collections.abc import Callable

import aioice.ice

LOOPBACK = "127.0.0.1"

_ask_aioice: Callable[[bool, bool], list[str]] = aioice.ice.get_host_addresses


def offer_addresses(only: tuple[str, ...]) -> None:
    """Offer these addresses; none given: every address of the machine, or loopback if that is all there is."""

    def chosen(use_ipv4: bool, use_ipv6: bool) -> list[str]:
        return list(only) or _ask_aioice(use_ipv4, use_ipv6) or [LOOPBACK]

    aioice.ice.get_host_addresses = chosen
