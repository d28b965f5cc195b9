"""A port as a TAP device: the kernel of this machine, or of one of its network namespaces, attached to the switch.

Whole frames pass in both directions (IFF_NO_PI: nothing in front of them). The device uses no virtio headers (no
IFF_VNET_HDR) and grants no offload (TUNSETOFFLOAD), so frames from the kernel have their checksums computed and fit the
MTU. See linux/Documentation/networking/tuntap.rst.
"""

import errno
import fcntl
import os
import struct
from collections import Counter

from sim.emulator.card import FRAME_BYTES_LEAST

__all__ = ["NAME_BYTES_MOST", "Tap"]

DEVICE = "/dev/net/tun"
TUNSETIFF = 0x400454CA
IFF_TAP, IFF_NO_PI = 0x0002, 0x1000
NAME_BYTES_MOST = 15
FRAME_BYTES_MOST = 65536

REMEDIES = {
    errno.ENOENT: f"this kernel has no {DEVICE}: load its module (modprobe tun), or show the device to this container",
    errno.ENODEV: f"this kernel has no driver behind {DEVICE}: load its module (modprobe tun)",
    errno.EACCES: f"no permission to open {DEVICE}: run as root, or add your user to the group that owns it",
    errno.EPERM: "making a device needs CAP_NET_ADMIN: run as root, or make one before (ip tuntap add dev {name} "
    "mode tap user $USER)",
    errno.EBUSY: "another process has it: choose another name",
    errno.EINVAL: "a device of this name exists and is no TAP of one queue: choose another name",
}


class Tap:
    """A TAP device as an `Attachment`.

    The interface `name` is created unless it exists; with None the kernel chooses a name. The device disappears when it
    is closed, unless it was made to persist. It is down at first: the user calls `ip link set dev NAME up`. Raises
    OSError, with the remedy, if the kernel or the rights forbid it.
    """

    wall = True

    def __init__(self, name: str | None = None):
        if name is not None and (
            not 0 < len(name.encode()) <= NAME_BYTES_MOST
            or name in (".", "..")
            or any(sign in "/:%" or sign.isspace() for sign in name)
        ):
            raise ValueError(
                f"a TAP's name must be 1 to {NAME_BYTES_MOST} bytes without space, '/', ':' or '%', not {name!r}"
            )
        self.counts: Counter[str] = Counter()
        self._descriptor = -1
        try:
            self._descriptor = os.open(DEVICE, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
            request = struct.pack("16sH22x", (name or "").encode(), IFF_TAP | IFF_NO_PI)
            made = fcntl.ioctl(self._descriptor, TUNSETIFF, request)
        except OSError as error:
            self.close()
            remedy = REMEDIES.get(error.errno or 0, str(error.strerror)).format(name=name or "NAME")
            raise OSError(error.errno, f"cannot open TAP {name or '(any)'}: {remedy}") from error
        self.name = made[:16].rstrip(b"\0").decode()

    @property
    def address(self) -> str:
        """The name by which the interface was opened; `ip link` can rename it."""
        return self.name

    def fileno(self) -> int:
        return self._descriptor

    def receive_frames(self, most: int) -> list[bytes]:
        frames: list[bytes] = []
        while len(frames) < most:
            try:
                frame = os.read(self._descriptor, FRAME_BYTES_MOST)
            except BlockingIOError:
                break
            except OSError:  # the interface was deleted, or is down
                break
            frames.append(frame.ljust(FRAME_BYTES_LEAST, b"\0"))
            self.counts["frames from the kernel"] += 1
        return frames

    def deliver_frames(self, frames: list[bytes]) -> None:
        """Implements `Attachment.deliver_frames`. Frames that the kernel does not accept (the interface is down) are
        lost, as on an unplugged cable."""
        for frame in frames:
            try:
                os.write(self._descriptor, frame)
                self.counts["frames to the kernel"] += 1
            except OSError:
                self.counts["out, refused by the kernel"] += 1

    def close(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1
