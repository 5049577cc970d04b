"""Edits of kube-proxy's nftables rule set that remove expected differences."""

from collections.abc import Mapping

from msgspec.structs import replace

from knft.interpret.compare.edit import with_collection
from knft.interpret.compare.expected_differences.ipvs_edits import CONTESTED_FRONTENDS
from knft.interpret.compare.expected_differences.knft_edits import knft_name
from knft.interpret.rules import Element, RuleSet, Verdict
from knft.protocols import NFT_PROTOCOLS, PROTOCOL_NUMBERS

_MAPS = ("service-ips", "service-nodeports")
_PROTOCOLS = {PROTOCOL_NUMBERS[name]: name for name in NFT_PROTOCOLS.values()}


def give_contested_frontends_to_owners(rules: RuleSet, knft: RuleSet) -> RuleSet:
    """Let contested external frontends lead to kube-proxy's own chain of the Service port that owns them in knft.

    Only if another Service that claims the frontend has it: a frontend that leads elsewhere is a real difference.
    """
    contested = knft.collections.get(CONTESTED_FRONTENDS)
    claimants = {item.key: item.comment.split() for item in contested.elements} if contested is not None else {}
    known = _external_chains(rules) if claimants else {}
    for name in _MAPS if known else ():
        own = knft.collections.get(knft_name(knft, name))
        other = rules.collections.get(_kube_proxy_name(rules, name))
        if own is not None and other is not None:
            owners = {item.key: item for item in own.elements if item.key in claimants}
            chains = {
                key: {port: known[text] for port in claimants[key] if (text := _chain_key(port, key)) in known}
                for key in owners
            }
            elements = (
                _of_owner(item, owners[item.key].comment, chains[item.key]) if item.key in owners else item
                for item in other.elements
            )
            rules = with_collection(rules, replace(other, elements=tuple(elements)))
    return rules


def _kube_proxy_name(rules: RuleSet, name: str) -> str:
    return knft_name(rules, name).replace(" knft ", " kube-proxy ", 1)


def _external_chains(rules: RuleSet) -> dict[str, str]:
    """Return kube-proxy's chains ``external-HASH-NAMESPACE/NAME/PROTOCOL/PORT``, by their names without the hash."""
    prefix = _kube_proxy_name(rules, "external-")
    return {name.removeprefix(prefix).partition("-")[2]: name for name in rules.chains if name.startswith(prefix)}


def _chain_key(name: str, key: tuple[object, ...]) -> str:
    """Return the name of a Service port's chain without the hash."""
    service, _, port = name.partition(":")
    protocol = next(text for number, text in _PROTOCOLS.items() if number == key[-2])
    return f"{service}/{protocol}/{port}"


def _of_owner(element: Element, owner: str, chains: Mapping[str, str]) -> Element:
    value = element.value
    if owner not in chains or not isinstance(value, Verdict) or value.chain not in chains.values():
        return element
    return replace(element, value=replace(value, chain=chains[owner]))
