"""The Service whose addresses MetalLB announces."""

from collections.abc import Iterator
from contextlib import contextmanager

from tests.faults import objects
from tests.faults.objects import BALANCED, NAMESPACE, WEB
from tests.faults.testbed import SECONDS, Testbed
from tests.support.metallb import remove_metallb, start_metallb
from tests.support.waiting import wait_until


@contextmanager
def running_metallb(testbed: Testbed) -> Iterator[tuple[str, ...]]:
    """Run MetalLB; yield the addresses that it has given to a Service of the servers."""
    start_metallb(testbed.cluster)
    testbed.apply([objects.load_balancer(BALANCED, WEB)])
    wanted = len(testbed.cluster.plan.addresses)
    wait_until(
        lambda: len(_addresses(testbed)) == wanted, "MetalLB assigns no addresses", timeout=SECONDS, interval=1.0
    )
    yield _addresses(testbed)
    testbed.kubectl("delete", "service", BALANCED, namespace=NAMESPACE)
    remove_metallb(testbed.cluster)


def _addresses(testbed: Testbed) -> tuple[str, ...]:
    status = testbed.get("service", BALANCED)["status"]["loadBalancer"]
    return tuple(each["ip"] for each in status.get("ingress", ()))
