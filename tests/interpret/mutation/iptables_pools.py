"""Ways in which endpoints, their shares, affinity and hairpins go wrong in mode iptables."""

import re
from random import Random

from tests.interpret.mutation.iptables_places import (
    CHECKS,
    DNAT,
    HERE,
    POOLS,
    RANDOM,
    SETS,
    edited,
    more,
    one_of,
    pools,
    removed,
)
from tests.interpret.mutation.operator import Operator, Touched
from tests.interpret.mutation.saved import Saved


def _endpoint_missing(saved: Saved, chance: Random) -> Touched | None:
    """Take the last endpoint of a pool away, so that some packets find none."""
    place = one_of(saved.find("nat", POOLS, "-j KUBE-SEP", "--probability|--rcheck"), chance)
    if place is None:
        return None
    saved.remove(place)
    return Touched((saved.service(place),))


def _slightly(found: re.Match[str]) -> str:
    return f"--probability {float(found[1]) + 1e-6:.10f}"


def _probabilities_swapped(saved: Saved, chance: Random) -> Touched | None:
    there = [found for chain in pools(saved) if len(found := saved.find("nat", chain, "--probability")) > 1]
    if not there:
        return None
    one, other = chance.choice(there)[:2]
    shares = [place.text.partition("--probability ")[2].split()[0] for place in (one, other)]
    saved.replace(one, one.text.replace(shares[0], shares[1]))
    saved.replace(other, other.text.replace(shares[1], shares[0]))
    return Touched((saved.service(one),))


def _last_first(saved: Saved, chance: Random) -> Touched | None:
    """Put the rule without a probability in front of those with one."""
    there = [chain for chain in pools(saved) if saved.find("nat", chain, "--probability")]
    if not there:
        return None
    chain = chance.choice(there)
    last, first = saved.find("nat", chain)[-1], saved.find("nat", chain, "--probability")[0]
    saved.remove(last)
    saved.insert(first, last.text)
    return Touched((saved.service(first),))


def _checks_last(saved: Saved, chance: Random) -> Touched | None:
    """Look for who is remembered only after an endpoint was drawn."""
    there = [found for chain in pools(saved) if (found := saved.find("nat", chain, "--rcheck"))]
    if not there:
        return None
    found = chance.choice(there)
    last = saved.find("nat", found[0].chain)[-1]
    saved.append(last, *(place.text for place in found))
    saved.remove(*found)
    return Touched((saved.service(last),))


def _hairpin_missing(saved: Saved, chance: Random) -> Touched | None:
    place = one_of(saved.find("nat", "KUBE-SEP-*", "KUBE-MARK-MASQ"), chance)
    if place is None:
        return None
    service = saved.service(place)
    saved.remove(place)
    if HERE.search(place.text):
        return Touched((service,))
    return Touched((service,), "the endpoint is on another node: knft masquerades no such one, by intent")


def _hairpin_late(saved: Saved, chance: Random) -> Touched | None:
    """Translate before looking at who dials."""
    places = [place for place in saved.find("nat", "KUBE-SEP-*", "KUBE-MARK-MASQ") if HERE.search(place.text)]
    place = one_of(places, chance)
    if place is None:
        return None
    service = saved.service(place)
    saved.swap(place, saved.find("nat", place.chain, "-j DNAT")[0])
    return Touched((service,))


def _foreign_endpoint(saved: Saved, chance: Random) -> Touched | None:
    """Send some packets of a Service to an endpoint of another."""
    there = {saved.owner(chain): chain for chain in pools(saved) if saved.find("nat", chain, "-j KUBE-SEP")}
    if len(there) < 2:
        return None
    mine, other = chance.sample(sorted(there), 2)
    first = saved.find("nat", there[mine], "-j KUBE-SEP")[0]
    target = chance.choice(saved.find("nat", there[other], "-j KUBE-SEP")).target
    saved.insert(first, f"-A {first.chain} -m statistic --mode random --probability 0.1000000000 -j {target}")
    return Touched((mine,))


def _stale_endpoint(saved: Saved, chance: Random) -> Touched | None:
    """Keep an endpoint that is gone: its chain is there, and the pool still leads to it."""
    chains = [chain for chain in pools(saved) if saved.find("nat", chain, "--probability")]
    if not chains:
        return None
    first = saved.find("nat", chance.choice(chains), "--probability")[0]
    dnat = saved.find("nat", first.target, "-j DNAT")[0]
    stale = "KUBE-SEP-AAAAAAAAAAAAAAAA"
    saved.insert(dnat, _shifted(dnat.text.replace(first.target, stale)))
    first = saved.find("nat", first.chain, "--probability")[0]
    saved.insert(first, f"-A {first.chain} -m statistic --mode random --probability 0.2500000000 -j {stale}")
    saved.declare("nat", stale)
    return Touched((saved.service(first),))


def _shifted(text: str) -> str:
    """Return a rule that translates to an address that nobody has."""
    return re.sub(
        r"--to-destination (10\.244|\[fd00:10:244)([.:])\d+[.:]+[0-9a-f]+",
        lambda found: f"--to-destination {found[1]}{'.9.9' if found[2] == '.' else ':9::9'}",
        text,
    )


def _list_of_other(saved: Saved, chance: Random) -> Touched | None:
    """Look for clients in the list of another endpoint."""
    there = [found for chain in pools(saved) if len(found := saved.find("nat", chain, "--rcheck")) > 1]
    if not there:
        return None
    one, other = chance.sample(chance.choice(there), 2)
    saved.replace(one, one.text.replace(f"--name {one.target}", f"--name {other.target}"))
    return Touched((saved.service(one),))


OF_POOLS: tuple[Operator[Saved], ...] = (
    Operator("endpoint missing", "the last one of a pool", _endpoint_missing),
    Operator("drawn endpoint missing", "one with a probability: the others' shares grow", removed(RANDOM)),
    Operator("probability off", "by one in a million", edited(RANDOM, r"--probability (\S+)", _slightly)),
    Operator("probability gone", "the first gets all", edited(RANDOM, r"-m statistic .*--probability \S+ ", "")),
    Operator("probabilities swapped", "of two endpoints", _probabilities_swapped),
    Operator("last endpoint first", "the rule without a probability before the others", _last_first),
    Operator("foreign endpoint", "one of another Service", _foreign_endpoint),
    Operator("stale endpoint", "one that is gone is still led to", _stale_endpoint),
    Operator("wrong endpoint port", "of a translation", edited(DNAT, r"(--to-destination \S+:)(\d+)$", more(1))),
    Operator(
        "wrong endpoint address",
        "of a translation",
        edited(DNAT, r"--to-destination .*$", lambda found: _shifted(found[0])),
    ),
    Operator("translation gone", "an endpoint's chain does nothing", removed(DNAT)),
    Operator("hairpin missing", "an endpoint that dials itself is not masqueraded", _hairpin_missing),
    Operator("hairpin late", "translated before it is looked at", _hairpin_late),
    Operator("other timeout", "of affinity", edited(CHECKS, r"(--seconds )(\d+)", more(1))),
    Operator("affinity lost", "nobody looks who is remembered", removed(CHECKS)),
    Operator("affinity unset", "nobody is remembered", edited(SETS, r"-m recent --name \S+ --set ", "")),
    Operator("affinity in another list", "clients are looked for where others are", _list_of_other),
    Operator("affinity late", "looked for after an endpoint was drawn", _checks_last),
)
