"""A guest: a kernel, and what runs it."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from tests.vm.kernel import Kernel

Run = Callable[[Kernel, bytes, Sequence[Path], float], bytes]
"""Boots a kernel with an initramfs, the paths that it needs, and a limit in seconds; returns the guest's report."""


class Guest(NamedTuple):
    """A kernel, and what runs it; ``kind`` is KNFT_GUEST in the guest.

    Before it can mount this machine's files, which have a file system of type ``share``, it loads ``modules``.
    """

    kind: str
    kernel: Kernel
    modules: Sequence[str]
    share: str
    run: Run
