"""Finds the rules of other programs in a capture: they stay in the kernel when knft replaces kube-proxy."""

from typing import Literal

from msgspec.structs import replace

from knft.interpret.owned_chains import is_owned_chain
from knft.interpret.ranges import Ranges, contains
from knft.interpret.rules import Chain, Rule, RuleSet, Verdict

_JUMPS: tuple[Literal["jump", "goto"], ...] = ("jump", "goto")


def foreign_rules(rules: RuleSet, node_addresses: Ranges) -> RuleSet:
    """Return a rule set without kube-proxy's chains, tables and virtual servers, and without knft's tables.

    Virtual servers at addresses of kube-ipvs0 and at ``node_addresses`` are kube-proxy's.
    """
    owned = frozenset(name for name in rules.chains if is_owned_chain(name))
    jumps = frozenset(Verdict(kind, name) for name in owned for kind in _JUMPS)
    chains = {name: _without(chain, jumps) for name, chain in rules.chains.items() if name not in owned}
    served = rules.ipvs_addresses, node_addresses
    return replace(
        rules,
        base_chains=tuple(base for base in rules.base_chains if base.chain not in owned),
        chains=chains,
        servers=tuple(
            item for item in rules.servers if not any(contains(addresses, item.address) for addresses in served)
        ),
        ipvs_addresses=(),
    )


def _without(chain: Chain, jumps: frozenset[Verdict]) -> Chain:
    kept = tuple(rule for rule in chain.rules if not _jumps_to(rule, jumps))
    return chain if len(kept) == len(chain.rules) else replace(chain, rules=kept)


def _jumps_to(rule: Rule, targets: frozenset[Verdict]) -> bool:
    return any(isinstance(step, Verdict) and step in targets for step in rule.steps)
