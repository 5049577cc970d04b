"""The objects of scenarios that the API server refuses, and why. knft may still receive such objects.

Stored objects are not validated again, so they survive stricter rules, and a repaired etcd may hold anything. The tests
write these objects directly to etcd, and the API server serves them like all others.
"""

from typing import NamedTuple

from tests.cluster.desired import Key


class Refusal(NamedTuple):
    """A part of the API server's message, and the rule behind it."""

    message: str
    reason: str


_INVALID_ADDRESS = Refusal("must be a valid IP address", "since 1.36 it validates addresses of new Services")

REFUSED: dict[tuple[str, Key], Refusal] = {
    ("bad-addresses", ("Service", "default", "zeros")): Refusal("must not have leading 0s", _INVALID_ADDRESS.reason),
    ("bad-addresses", ("Service", "default", "faulty")): _INVALID_ADDRESS,
    ("source-ranges", ("Service", "default", "faulty")): Refusal(
        "must be a valid CIDR value", "it has always validated CIDRs"
    ),
    ("claims", ("Service", "default", "a-name")): Refusal(
        "provided port is already allocated",
        "a NodePort belongs to one Service, as long as the allocation record is intact",
    ),
    ("external-addresses", ("Service", "default", "shop")): Refusal(
        "provided port is already allocated", "two ports share a NodePort only where they have the same number"
    ),
    ("policies", ("Service", "default", "unreachable")): Refusal(
        "may only be set for externally-accessible services",
        "the policy is for Services that are reachable from outside",
    ),
    ("selection", ("Service", "default", "no-ports")): Refusal(
        "spec.ports: Required value", "only headless Services have none"
    ),
}
"""The refused objects, by scenario and object key."""
