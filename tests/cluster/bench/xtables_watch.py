"""XtablesWatch: finds the time at which the addresses of new endpoints are in legacy iptables' table nat.

The kernel sends no notifications about these tables. So a thread polls the table's size every two milliseconds, and
reads the whole table if the size has changed, and from time to time.
"""

import ctypes
import os
import socket
import struct
import time

from tests.cluster.bench.endpoint_watch import EndpointWatch

_TABLE = b"nat".ljust(32, b"\0")
_GET_INFO, _GET_ENTRIES = 64, 65  # IPT_SO_GET_INFO and IPT_SO_GET_ENTRIES of linux/netfilter_ipv4/ip_tables.h
_INFO_SIZE, _ENTRIES_OFFSET = 84, 40
_POLL_SECONDS, _FIRST_READING_SECONDS = 0.002, 0.1
# Reading the table takes at most this share of the time.
_READING_SHARE = 0.05
_libc = ctypes.CDLL(None, use_errno=True)


class XtablesWatch(EndpointWatch):
    """Polls the table."""

    def _open(self) -> socket.socket:
        return socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_RAW)

    def _look(self) -> None:
        known, next_reading = self._info(), time.monotonic() + _FIRST_READING_SECONDS
        while self._is_looking():
            info, now = self._info(), time.monotonic()
            if info != known or now > next_reading:
                known = info
                self._found(self._entries(info), now)
                next_reading = now + (time.monotonic() - now) / _READING_SHARE
            time.sleep(_POLL_SECONDS)

    def _info(self) -> bytes:
        return self._get(_GET_INFO, _TABLE.ljust(_INFO_SIZE, b"\0"))

    def _entries(self, info: bytes) -> bytes:
        """Return all rules; nothing if the table was changed after ``info`` was read."""
        (size,) = struct.unpack_from("=I", info, _INFO_SIZE - 4)
        try:
            return self._get(_GET_ENTRIES, (_TABLE + struct.pack("=I", size)).ljust(_ENTRIES_OFFSET + size, b"\0"))
        except BlockingIOError:
            return b""

    def _get(self, option: int, request: bytes) -> bytes:
        # socket.getsockopt() cannot pass a request.
        buffer, length = ctypes.create_string_buffer(request, len(request)), ctypes.c_uint(len(request))
        if _libc.getsockopt(self._socket.fileno(), socket.SOL_IP, option, buffer, ctypes.byref(length)) != 0:
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
        return buffer.raw
