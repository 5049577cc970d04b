"""Whether this machine can do what knft needs, asked before anything is changed."""

from typing import Protocol

from knft.errors import KernelError, UnsupportedError


class Commands(Protocol):
    """What carries out nft commands."""

    def run(self, commands: str) -> str:
        """Carry ``commands`` out as one transaction; raise KernelError where they are refused."""


# What each feature is for, and one rule that only a kernel with the feature accepts.
_FEATURES = (
    ("nf_tables", "CONFIG_NF_TABLES, CONFIG_NF_TABLES_IPV4 and CONFIG_NF_TABLES_IPV6", "filter", ""),
    ("nat", "CONFIG_NFT_NAT and CONFIG_NFT_MASQ", "nat", "masquerade fully-random"),
    ("numgen", "CONFIG_NFT_NUMGEN", "filter", "numgen random mod 2 0"),
    ("fib", "CONFIG_NFT_FIB_IPV4 and CONFIG_NFT_FIB_IPV6", "filter", "fib daddr type local"),
    ("reject", "CONFIG_NFT_REJECT", "filter", "reject"),
)
_HOOKS = {"filter": "type filter hook input priority 0", "nat": "type nat hook postrouting priority 99"}
_NO_PRIVILEGE = ("Operation not permitted", "Permission denied")


def _sample(family: str, chain_type: str, rule: str) -> str:
    # Made and deleted in one transaction, so that nothing of it is ever in force or left behind.
    table = f"{family} knft-probe"
    return f"table {table} {{ chain probe {{\n{_HOOKS[chain_type]}\n{rule}\n}}\n}}\ndelete table {table}\n"


def probe(kernel: Commands) -> None:
    """Return where the kernel accepts all that knft needs in both families; raise UnsupportedError otherwise."""
    for family in ("ip", "ip6"):
        for feature, option, chain_type, rule in _FEATURES:
            try:
                kernel.run(_sample(family, chain_type, rule))
            except KernelError as error:
                raise UnsupportedError(_explain(feature, option, error)) from error


def _explain(feature: str, option: str, error: KernelError) -> str:
    if any(words in error.detail for words in _NO_PRIVILEGE):
        return "CAP_NET_ADMIN is missing: run knft as root, or give its container that capability"
    return f"the kernel lacks {feature} ({option}): use a kernel that has it; it said: {error}"
