"""Checks whether this host supports everything that knft needs, before anything is changed."""

from pathlib import Path

from knft.errors import KernelError, LibraryDiedError, UnsupportedError
from knft.families import Family
from knft.kernel.command_runner import CommandRunner
from knft.kernel.newer_sets import library_death_error

# Feature, kernel options that provide it, type of the chain, and a rule that needs it.
_FEATURES = (
    ("nf_tables", "CONFIG_NF_TABLES, CONFIG_NF_TABLES_IPV4 and CONFIG_NF_TABLES_IPV6", "filter", ""),
    ("nat", "CONFIG_NFT_NAT and CONFIG_NFT_MASQ", "nat", "masquerade fully-random"),
    ("numgen", "CONFIG_NFT_NUMGEN", "filter", "numgen random mod 2 0"),
    ("fib", "CONFIG_NFT_FIB_IPV4 and CONFIG_NFT_FIB_IPV6", "filter", "fib daddr type local"),
    ("reject", "CONFIG_NFT_REJECT", "filter", "reject"),
)
_HOOKS = {"filter": "type filter hook input priority 0", "nat": "type nat hook postrouting priority 99"}
_REFUSALS = ("Operation not permitted", "Permission denied")
_NO_PRIVILEGE = "CAP_NET_ADMIN is missing: run knft as root, or give its container that capability"
_CAP_NET_ADMIN = 1 << 12


def _probe_commands(family: Family, *rules: tuple[str, str]) -> str:
    """Return commands for a table with these rules, each in a chain of the given type."""
    table = f"{family.nft} knft-probe"
    chains = "\n".join(
        f"chain probe-{number} {{\n{_HOOKS[chain_type]}\n{rule}\n}}" for number, (chain_type, rule) in enumerate(rules)
    )
    # Created and deleted in one transaction, so that it never takes effect and nothing remains.
    return f"table {table} {{\n{chains}\n}}\ndelete table {table}\n"


def require_working_library(library: CommandRunner, family: Family) -> None:
    """Run a harmless command; raise LibraryDiedError if libnftables crashes even on that."""
    library.run(_probe_commands(family, ("filter", "counter")))


def require_privilege(process_status: str | None = None) -> None:
    """Raise UnsupportedError if this process has no CAP_NET_ADMIN.

    ``process_status`` is the text of /proc/self/status. Call this before libnftables, which prints to standard error
    itself when it lacks the capability.
    """
    status = process_status or Path("/proc/self/status").read_text(encoding="ascii")
    effective = next((line.split()[1] for line in status.splitlines() if line.startswith("CapEff:")), "0")
    if not int(effective, 16) & _CAP_NET_ADMIN:
        raise UnsupportedError(_NO_PRIVILEGE)


def probe(library: CommandRunner) -> None:
    """Raise UnsupportedError if the kernel rejects a feature that knft needs, in either family.

    Also raised if libnftables crashes, which does not depend on the kernel.
    """
    try:
        library.run("".join(_probe_commands(family, *(feature[2:] for feature in _FEATURES)) for family in Family))
    except LibraryDiedError as error:
        raise UnsupportedError(str(library_death_error(error))) from error
    except KernelError:
        _probe_each(library)


def _probe_each(library: CommandRunner) -> None:
    """Probe each feature alone, to name the one that the kernel rejects; it may have refused all for lack of memory."""
    for family in Family:
        for feature, option, chain_type, rule in _FEATURES:
            try:
                library.run(_probe_commands(family, (chain_type, rule)))
            except LibraryDiedError as error:
                raise UnsupportedError(str(library_death_error(error))) from error
            except KernelError as error:
                raise UnsupportedError(_explain(feature, option, error)) from error


def _explain(feature: str, option: str, error: KernelError) -> str:
    if any(words in error.detail for words in _REFUSALS):
        return _NO_PRIVILEGE
    return f"the kernel does not support {feature}: use a kernel with {option} ({error})"
