"""Whether a frame comes from where its member joined."""

__all__ = ["same_sender"]


def same_sender(headers, member):
    """The port (as one condition) and the addresses (as another) are those the member joined with."""
    frame = headers.frame
    return (
        headers.arrival.port == member.port,
        (frame.eth_src.as_value() == member.address.mac)
        & (frame.ip_src.as_value() == member.address.ip)
        & (frame.udp_src.as_value() == member.address.udp),
    )
