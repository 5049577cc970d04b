"""Faults of endpoints, probabilities, session affinity and hairpins in mode iptables."""

import re
from random import Random

from tests.mutation.iptables_rules import (
    CHECKS,
    DNAT,
    LOCAL_POD,
    POOLS,
    RANDOM,
    SETS,
    choose,
    edit_rule,
    increased_by,
    pool_chains,
    remove_rule,
)
from tests.mutation.iptables_save import IptablesSave
from tests.mutation.operator import Expectation, Operator


def _endpoint_missing(saved: IptablesSave, random: Random) -> Expectation | None:
    """Remove the last endpoint of a pool, so that some packets reach none."""
    place = choose(saved.find("nat", POOLS, "-j KUBE-SEP", "--probability|--rcheck"), random)
    if place is None:
        return None
    saved.remove(place)
    return Expectation((saved.service_of_rule(place),))


def _slightly_larger_probability(found: re.Match[str]) -> str:
    return f"--probability {float(found[1]) + 1e-6:.10f}"


def _probabilities_swapped(saved: IptablesSave, random: Random) -> Expectation | None:
    there = [found for chain in pool_chains(saved) if len(found := saved.find("nat", chain, "--probability")) > 1]
    if not there:
        return None
    one, other = random.choice(there)[:2]
    shares = [place.text.partition("--probability ")[2].split()[0] for place in (one, other)]
    saved.replace(one, one.text.replace(shares[0], shares[1]))
    saved.replace(other, other.text.replace(shares[1], shares[0]))
    return Expectation((saved.service_of_rule(one),))


def _unconditional_rule_first(saved: IptablesSave, random: Random) -> Expectation | None:
    """Move the rule without a probability before the others."""
    there = [chain for chain in pool_chains(saved) if saved.find("nat", chain, "--probability")]
    if not there:
        return None
    chain = random.choice(there)
    last, first = saved.find("nat", chain)[-1], saved.find("nat", chain, "--probability")[0]
    saved.remove(last)
    saved.insert(first, last.text)
    return Expectation((saved.service_of_rule(first),))


def _affinity_checks_last(saved: IptablesSave, random: Random) -> Expectation | None:
    """Check recorded clients after a random endpoint was chosen."""
    there = [found for chain in pool_chains(saved) if (found := saved.find("nat", chain, "--rcheck"))]
    if not there:
        return None
    found = random.choice(there)
    last = saved.find("nat", found[0].chain)[-1]
    saved.append(last, *(place.text for place in found))
    saved.remove(*found)
    return Expectation((saved.service_of_rule(last),))


def _hairpin_missing(saved: IptablesSave, random: Random) -> Expectation | None:
    place = choose(saved.find("nat", "KUBE-SEP-*", "KUBE-MARK-MASQ"), random)
    if place is None:
        return None
    service = saved.service_of_rule(place)
    saved.remove(place)
    if LOCAL_POD.search(place.text):
        return Expectation((service,))
    return Expectation(
        (service,), "the endpoint is on another node: knft does not masquerade it (an expected difference)"
    )


def _hairpin_late(saved: IptablesSave, random: Random) -> Expectation | None:
    """Translate the packet before the hairpin rule."""
    places = [place for place in saved.find("nat", "KUBE-SEP-*", "KUBE-MARK-MASQ") if LOCAL_POD.search(place.text)]
    place = choose(places, random)
    if place is None:
        return None
    service = saved.service_of_rule(place)
    saved.swap(place, saved.find("nat", place.chain, "-j DNAT")[0])
    return Expectation((service,))


def _foreign_endpoint(saved: IptablesSave, random: Random) -> Expectation | None:
    """Send some packets of a Service to an endpoint of another."""
    there = {
        saved.service_of_chain(chain): chain for chain in pool_chains(saved) if saved.find("nat", chain, "-j KUBE-SEP")
    }
    if len(there) < 2:
        return None
    mine, other = random.sample(sorted(there), 2)
    first = saved.find("nat", there[mine], "-j KUBE-SEP")[0]
    target = random.choice(saved.find("nat", there[other], "-j KUBE-SEP")).target
    saved.insert(first, f"-A {first.chain} -m statistic --mode random --probability 0.1000000000 -j {target}")
    return Expectation((mine,))


def _stale_endpoint(saved: IptablesSave, random: Random) -> Expectation | None:
    """Add a removed endpoint to a pool."""
    chains = [chain for chain in pool_chains(saved) if saved.find("nat", chain, "--probability")]
    if not chains:
        return None
    first = saved.find("nat", random.choice(chains), "--probability")[0]
    dnat = saved.find("nat", first.target, "-j DNAT")[0]
    stale = "KUBE-SEP-AAAAAAAAAAAAAAAA"
    saved.insert(dnat, _shifted(dnat.text.replace(first.target, stale)))
    first = saved.find("nat", first.chain, "--probability")[0]
    saved.insert(first, f"-A {first.chain} -m statistic --mode random --probability 0.2500000000 -j {stale}")
    saved.declare("nat", stale)
    return Expectation((saved.service_of_rule(first),))


def _shifted(text: str) -> str:
    """Return the rule with an address that no endpoint has."""
    return re.sub(
        r"--to-destination (10\.244|\[fd00:10:244)([.:])\d+[.:]+[0-9a-f]+",
        lambda found: f"--to-destination {found[1]}{'.9.9' if found[2] == '.' else ':9::9'}",
        text,
    )


def _affinity_list_of_other_endpoint(saved: IptablesSave, random: Random) -> Expectation | None:
    """Check clients in the list of another endpoint."""
    there = [found for chain in pool_chains(saved) if len(found := saved.find("nat", chain, "--rcheck")) > 1]
    if not there:
        return None
    one, other = random.sample(random.choice(there), 2)
    saved.replace(one, one.text.replace(f"--name {one.target}", f"--name {other.target}"))
    return Expectation((saved.service_of_rule(one),))


POOL_OPERATORS: tuple[Operator[IptablesSave], ...] = (
    Operator("endpoint missing", "the last one of a pool", _endpoint_missing),
    Operator(
        "endpoint with a probability missing", "one with a probability: the others' shares grow", remove_rule(RANDOM)
    ),
    Operator(
        "probability off",
        "by one in a million",
        edit_rule(RANDOM, r"--probability (\S+)", _slightly_larger_probability),
    ),
    Operator("probability gone", "the first gets all", edit_rule(RANDOM, r"-m statistic .*--probability \S+ ", "")),
    Operator("probabilities swapped", "of two endpoints", _probabilities_swapped),
    Operator("last endpoint first", "the rule without a probability before the others", _unconditional_rule_first),
    Operator("endpoint of another Service", "one of another Service", _foreign_endpoint),
    Operator("stale endpoint", "packets still go to a removed endpoint", _stale_endpoint),
    Operator(
        "wrong endpoint port", "of a translation", edit_rule(DNAT, r"(--to-destination \S+:)(\d+)$", increased_by(1))
    ),
    Operator(
        "wrong endpoint address",
        "of a translation",
        edit_rule(DNAT, r"--to-destination .*$", lambda found: _shifted(found[0])),
    ),
    Operator("translation gone", "an endpoint's chain does nothing", remove_rule(DNAT)),
    Operator("hairpin missing", "packets of an endpoint to itself are not masqueraded", _hairpin_missing),
    Operator("hairpin rule after DNAT", "the packet is translated before its source is tested", _hairpin_late),
    Operator("other timeout", "of affinity", edit_rule(CHECKS, r"(--seconds )(\d+)", increased_by(1))),
    Operator("affinity not checked", "recorded clients are not checked", remove_rule(CHECKS)),
    Operator("affinity not recorded", "clients are not recorded", edit_rule(SETS, r"-m recent --name \S+ --set ", "")),
    Operator(
        "affinity in another list", "the check reads the list of another endpoint", _affinity_list_of_other_endpoint
    ),
    Operator(
        "affinity check after the choice",
        "recorded clients are checked after a random endpoint was chosen",
        _affinity_checks_last,
    ),
)
