"""Warnings about rules that kube-proxy left on this node, at the start of ``knft run`` and in ``knft status``."""

import logging
import os
from collections.abc import Callable, Iterator

from knft.app.leftovers import KubeProxyLeftovers
from knft.app.log_writer import LogWriter
from knft.counts import format_count
from knft.errors import KernelError
from knft.kernel.privileges import die_with_parent
from knft.kernel.table_flags import table_flags
from knft.leftovers.messages import describe_found_chains, leftover_warning
from knft.leftovers.names import DEVICE, TABLES
from knft.memory_errors import exit_if_out_of_memory
from knft.proxy_mode import Mode

log = logging.getLogger("knft")

READ_TIMEOUT_SECONDS = 10.0
"""Time limit of each program."""
LOG_SECONDS = 10.0
"""How long the child process waits until its warnings are written."""


def warn_of_leftovers() -> None:
    """Log a warning for each mode of kube-proxy that left something, and for each read that fails; never raise."""

    def report(error: KernelError) -> None:
        log.warning("cannot look for kube-proxy's leftovers: %s", error)

    for warning in leftover_warnings(report):
        log.warning("%s", warning)


def leftover_warnings(on_error: Callable[[KernelError], None]) -> Iterator[str]:
    """Yield a warning for each mode of kube-proxy that left something; a failed read is passed to ``on_error``."""
    leftovers = KubeProxyLeftovers(lambda _, error: on_error(error), READ_TIMEOUT_SECONDS)
    for mode in Mode:
        try:
            found = find_leftovers(leftovers, mode)
        except KernelError as error:
            on_error(error)
            continue
        if found:
            yield leftover_warning(mode, found)


def warn_of_leftovers_in_child(log_writer: LogWriter) -> int:
    """Log the warnings in a child process, so that the start does not wait for them; return its process ID.

    Call it while the process has one thread and all its capabilities: iptables-legacy-save needs CAP_NET_RAW.
    """
    process = os.fork()
    if process:
        return process
    try:
        die_with_parent()
        log_writer.discard()
        warn_of_leftovers()
    except BaseException as error:
        exit_if_out_of_memory(error)
        log.exception("unexpected error while looking for kube-proxy's leftovers; please report this")
    finally:
        log_writer.flush(LOG_SECONDS)
        os._exit(0)


def find_leftovers(leftovers: KubeProxyLeftovers, mode: Mode) -> list[str]:
    """Return what kube-proxy left in a mode, such as "18 chains in iptables-nft"; raise KernelError."""
    if mode is Mode.NFTABLES:
        existing = table_flags()
        return [" ".join(table) for table in TABLES if table in existing]
    return [*_chains(leftovers, mode), *(_ipvs_leftovers(leftovers) if mode is Mode.IPVS else ())]


def _chains(leftovers: KubeProxyLeftovers, mode: Mode) -> Iterator[str]:
    for backend, plan in leftovers.chains_to_remove({mode}):
        if plan.restore_input:
            yield describe_found_chains(backend.name, plan)


def _ipvs_leftovers(leftovers: KubeProxyLeftovers) -> Iterator[str]:
    if sets := leftovers.sets_to_destroy(()).destroy:
        yield format_count(len(sets), "ipset")
    if leftovers.servers_to_remove is not None and leftovers.servers_to_remove.remove:
        yield format_count(len(leftovers.servers_to_remove.remove), "virtual server")
    if leftovers.has_ipvs_device:
        yield f"the device {DEVICE}"
