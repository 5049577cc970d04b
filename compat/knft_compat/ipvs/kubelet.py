"""The kubelet's chains that old rules of kube-proxy jump to (003 in docs/verification.md#original-documents).

kube-proxy creates such a chain if it is missing, but only the kubelet writes its rules: one marks packets in table nat,
another drops marked packets in table filter. Both are on every node that runs such a kube-proxy.
"""

from knft.families import Family
from knft_compat.ipvs.names import FIREWALL, MARK_DROP
from knft_compat.jumps import EnsureJumps, Jump
from knft_compat.rules import RestoreInput, Rule, TableInput, comment, mark_match

_DROP_MARK = "0x00008000"
_DROP_LABEL = comment("kubernetes firewall for dropping marked packets")


def kubelet_jumps(family: Family) -> EnsureJumps:
    """Return the kubelet's jumps to its chain in table filter."""
    return EnsureJumps(family, tuple(Jump("filter", source, FIREWALL) for source in ("INPUT", "OUTPUT")))


def kubelet_rules(family: Family) -> RestoreInput:
    """Return the kubelet's rules that drop packets with its mark."""
    return RestoreInput(
        family,
        (
            TableInput("nat", (MARK_DROP,), (Rule(MARK_DROP, ("-j", "MARK", "--or-mark", _DROP_MARK)),)),
            TableInput("filter", (FIREWALL,), (Rule(FIREWALL, (*_DROP_LABEL, *mark_match(_DROP_MARK), "-j", "DROP")),)),
        ),
    )
