"""What the API server refuses of the scenarios, and why. knft can meet it all the same.

Objects outlive the rules that they were made under, and a repaired etcd may hold anything. Nobody looks at stored
objects again: these are written to etcd, beneath the API server, which hands them out like all others.
"""

from typing import NamedTuple

from tests.cluster.desired import Key


class Refusal(NamedTuple):
    """Words of the API server's answer, and what it insists on."""

    message: str
    reason: str


_NO_ADDRESS = Refusal("must be a valid IP address", "since 1.36 it holds new Services to what an address is")

REFUSED: dict[tuple[str, Key], Refusal] = {
    ("bad-addresses", ("Service", "default", "zeros")): Refusal("must not have leading 0s", _NO_ADDRESS.reason),
    ("bad-addresses", ("Service", "default", "faulty")): _NO_ADDRESS,
    ("source-ranges", ("Service", "default", "faulty")): Refusal("must be a valid CIDR value", "it always did"),
    ("claims", ("Service", "default", "a-name")): Refusal(
        "provided port is already allocated", "a NodePort is one Service's, as long as the record of them is whole"
    ),
    ("external-addresses", ("Service", "default", "shop")): Refusal(
        "provided port is already allocated", "two ports share a NodePort only where they have the same number"
    ),
    ("policies", ("Service", "default", "unreachable")): Refusal(
        "may only be set for externally-accessible services", "the policy goes with what can be reached from outside"
    ),
    ("selection", ("Service", "default", "no-ports")): Refusal(
        "spec.ports: Required value", "only headless Services have none"
    ),
}
"""By scenario and object."""
