"""The address of a switch: its form, its look-up, and why this machine cannot send to it."""

import errno
import socket

from iswitch.errors import SwitchUnreachableError
from iswitch.wire import UDP_PORT

__all__ = ["parse_address", "resolve", "send_failure"]

_CHECK_ROUTE = "check the address, the interface and the route (`ip route get {ip}`)"
_FORBIDDEN = (
    "a firewall of this machine forbids it, or the address is a broadcast address",
    "check the address, and the firewall (`nft list ruleset`)",
)
_FAILURES = {
    errno.ENETUNREACH: ("this machine has no route to it", _CHECK_ROUTE),
    errno.EHOSTUNREACH: ("it does not answer ARP requests, or a router has no route to it", _CHECK_ROUTE),
    errno.ENETDOWN: ("the network interface on the path to it is down", "set the interface up (`ip link`)"),
    errno.EADDRNOTAVAIL: ("this machine has no address from which it can send there", _CHECK_ROUTE),
    errno.EPERM: _FORBIDDEN,
    errno.EACCES: _FORBIDDEN,
}


def parse_address(address: str) -> tuple[str, int]:
    """Return the host and the UDP port in an address.

    Parameters
    ----------
    address : str
        "host:port", or "host" for the switch's own port, 26963.

    Returns
    -------
    host : str
        Name or IPv4 address.
    port : int
        1 to 65535.

    Raises
    ------
    TypeError, ValueError
        If the address has another form.
    """
    if not isinstance(address, str):
        raise TypeError(f'switch address must be a str such as "10.0.0.1:{UDP_PORT}", not {address!r}')
    refused = f'switch address must be "host:port" or "host", not {address!r}'
    scheme, separator, _ = address.partition("://")
    if separator:
        raise ValueError(f'{refused}: leave out "{scheme}://"')
    host, colon, port = address.rpartition(":")
    if not colon:
        host, port = address, str(UDP_PORT)
    if ":" in host or "[" in host:
        raise ValueError(f"{refused}: iswitch uses IPv4, so pass the IPv4 address of the switch")
    if not host:
        raise ValueError(refused)
    if not port.isdecimal() or not 0 < int(port) < 65536:
        raise ValueError(f"{refused}: the port is a number from 1 to 65535")
    return host, int(port)


def resolve(address: str) -> tuple[str, int]:
    """Return the IPv4 address and the UDP port of a switch.

    Parameters
    ----------
    address : str
        As in `parse_address`.

    Returns
    -------
    ip : str
        IPv4 address.
    port : int
        UDP port.

    Raises
    ------
    SwitchUnreachableError
        If the host name has no IPv4 address, or cannot be looked up.
    TypeError, ValueError
        If the address has the wrong form.
    """
    host, port = parse_address(address)
    try:
        found = socket.getaddrinfo(host, port, socket.AF_INET, socket.SOCK_DGRAM)
    except socket.gaierror as error:
        if error.errno == socket.EAI_AGAIN:
            raise SwitchUnreachableError(
                f"the host name {host!r} cannot be looked up, because no name server answers: pass the IPv4 address "
                "of the "
                "switch, or check /etc/resolv.conf"
            ) from error
        raise _unknown_host_error(host) from error
    except UnicodeError as error:  # a label is empty or too long
        raise _unknown_host_error(host) from error
    return str(found[0][4][0]), port


def _unknown_host_error(host: str) -> SwitchUnreachableError:
    return SwitchUnreachableError(
        f"there is no host {host!r} with an IPv4 address: check the spelling, or pass the IPv4 address of the switch"
    )


def send_failure(error: OSError, ip: str) -> tuple[str, str]:
    """Return why the kernel cannot send a datagram to a host.

    Parameters
    ----------
    error : OSError
        The kernel's error.
    ip : str
        IPv4 address of the host.

    Returns
    -------
    cause : str
        The end of a sentence about the host.
    remedy : str
        What the user can do.
    """
    cause, remedy = _FAILURES.get(error.errno or 0, (str(error.strerror or error), _CHECK_ROUTE))
    return cause, remedy.format(ip=ip)
