"""The guest's initramfs: busybox, the modules for the shared file system, and ``init``, which mounts the rest."""

import lzma
import stat
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from tests.vm.kernel import Kernel

_INIT = Path(__file__).with_name("init.sh")
_BUSYBOX = Path("/bin/busybox")
_FOLDERS = ("bin", "modules", "proc", "sys", "dev", "host", "memory", "new")


class Entry(NamedTuple):
    """A file of the archive."""

    name: str
    mode: int
    content: bytes = b""


def build(kernel: Kernel, modules: Iterable[str], settings: str) -> bytes:
    """Return the archive; ``init`` loads the modules, and reads ``settings``, which are shell assignments."""
    files = kernel.modules(modules)
    entries = [
        *(Entry(name, stat.S_IFDIR | 0o755) for name in _FOLDERS),
        Entry("init", stat.S_IFREG | 0o755, _INIT.read_bytes()),
        Entry("settings", stat.S_IFREG | 0o644, settings.encode()),
        Entry("bin/busybox", stat.S_IFREG | 0o755, _BUSYBOX.read_bytes()),
        # Numbered, because they have to be loaded in this order.
        *(
            Entry(f"modules/{number:02}-{path.name.removesuffix('.xz')}", stat.S_IFREG | 0o644, _read_module(path))
            for number, path in enumerate(files)
        ),
    ]
    return archive(entries)


def that_powers_off() -> bytes:
    """Return an archive whose ``init`` does nothing but power off: it shows that a kernel runs programs."""
    return archive(
        [
            Entry("bin", stat.S_IFDIR | 0o755),
            Entry("bin/busybox", stat.S_IFREG | 0o755, _BUSYBOX.read_bytes()),
            Entry("init", stat.S_IFREG | 0o755, b"#!/bin/busybox sh\nexec /bin/busybox poweroff -f\n"),
        ]
    )


def _read_module(path: Path) -> bytes:
    """Return a module as insmod of busybox loads it; Debian 13 compresses them."""
    content = path.read_bytes()
    return lzma.decompress(content) if path.suffix == ".xz" else content


def archive(entries: Iterable[Entry]) -> bytes:
    """Return a cpio archive in the newc format, which the kernel reads."""
    parts = [part for number, entry in enumerate(entries, 1) for part in _record(number, entry)]
    return b"".join([*parts, *_record(0, Entry("TRAILER!!!", 0))])


def _record(number: int, entry: Entry) -> Iterator[bytes]:
    name = entry.name.encode() + b"\0"
    # Inode, mode, owner, group, links, time, size, four device numbers, length of the name, no checksum.
    fields = (number, entry.mode, 0, 0, 1, 0, len(entry.content), 0, 0, 0, 0, len(name), 0)
    yield _padded(b"070701" + b"".join(b"%08x" % field for field in fields) + name)
    yield _padded(entry.content)


def _padded(data: bytes) -> bytes:
    return data + b"\0" * (-len(data) % 4)
