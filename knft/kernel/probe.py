"""Whether this machine can do what knft needs, asked before anything is changed."""

from pathlib import Path

from knft.errors import KernelError, LibraryDiedError, UnsupportedError
from knft.kernel.libnftables import Commands
from knft.kernel.newer_sets import explained

# What each feature is for, and one rule that only a kernel with the feature accepts.
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


def _sample(family: str, chain_type: str, rule: str) -> str:
    # Made and deleted in one transaction, so that nothing of it is ever in force or left behind.
    table = f"{family} knft-probe"
    return f"table {table} {{ chain probe {{\n{_HOOKS[chain_type]}\n{rule}\n}}\n}}\ndelete table {table}\n"


def require_life(kernel: Commands, family: str) -> None:
    """Have the library do something harmless; raise LibraryDiedError where it dies even of that."""
    kernel.run(_sample(family, "filter", "counter"))


def require_privilege(process_status: str | None = None) -> None:
    """Raise UnsupportedError where this process has no CAP_NET_ADMIN.

    ``process_status`` is the text of /proc/self/status. Asked before libnftables, which writes to standard error
    itself when it is refused.
    """
    status = process_status or Path("/proc/self/status").read_text(encoding="ascii")
    effective = next((line.split()[1] for line in status.splitlines() if line.startswith("CapEff:")), "0")
    if not int(effective, 16) & _CAP_NET_ADMIN:
        raise UnsupportedError(_NO_PRIVILEGE)


def probe(kernel: Commands) -> None:
    """Return where the kernel accepts all that knft needs in both families; raise UnsupportedError otherwise.

    That the library dies says nothing of the kernel, and is UnsupportedError too.
    """
    for family in ("ip", "ip6"):
        for feature, option, chain_type, rule in _FEATURES:
            try:
                kernel.run(_sample(family, chain_type, rule))
            except LibraryDiedError as error:
                raise UnsupportedError(str(explained(error))) from error
            except KernelError as error:
                raise UnsupportedError(_explain(feature, option, error)) from error


def _explain(feature: str, option: str, error: KernelError) -> str:
    if any(words in error.detail for words in _REFUSALS):
        return _NO_PRIVILEGE
    return f"the kernel lacks {feature} ({option}): use a kernel that has it; it said: {error}"
