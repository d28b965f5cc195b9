"""Whether a frame comes from where its member joined."""

__all__ = ["matches_sender"]


def matches_sender(headers, member):
    """Return two conditions: the frame's port, and its addresses, are those with which the member joined."""
    frame = headers.frame
    return (
        headers.arrival.port == member.port,
        (frame.eth_src.as_value() == member.address.mac)
        & (frame.ip_src.as_value() == member.address.ip)
        & (frame.udp_src.as_value() == member.address.udp),
    )
