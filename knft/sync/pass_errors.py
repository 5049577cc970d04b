"""Failures of passes over conntrack: each is logged, and the thread of the passes continues."""

import logging
from collections.abc import Callable

from knft.errors import KernelError
from knft.families import Family
from knft.memory_errors import exit_if_out_of_memory

log = logging.getLogger("knft")


class PassErrors:
    """Runs passes, and logs an error of the kernel again only after another result in the same family."""

    def __init__(self, action: str, prefix: str = "") -> None:
        """Name the passes in log messages by an action such as "conntrack cleanup"; put a prefix before errors."""
        self._action = action
        self._prefix = prefix
        self._last: dict[Family, str] = {}

    def run(self, family: Family, run_pass: Callable[[Family], object]) -> None:
        """Run a pass of one family; raise nothing."""
        message = ""
        try:
            run_pass(family)
        except KernelError as error:
            message = str(error)
        except Exception as error:
            exit_if_out_of_memory(error)
            log.exception("%s: %s failed unexpectedly; please report this", family.value, self._action)
        if message and self._last.get(family) != message:
            log.error("%s: %s%s", family.value, self._prefix, message)
        self._last[family] = message
