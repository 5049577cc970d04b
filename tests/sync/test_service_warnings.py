"""The log lines about Services that no EndpointSlice serves."""

import itertools
import logging
from collections.abc import Iterable, Iterator

import pytest

from knft.config import Config
from knft.model.names import NamespacedName
from knft.model.objects import EndpointSlice, ObjectChange, Selector, Service
from knft.sync.assemble import states_after_batches
from knft.sync.dispatch import Dispatcher
from knft.sync.service_warnings import BATCH, ServiceWarnings
from knft.track.service_problems import ServiceProblems
from tests.support.kube_objects import NODE, endpoint_slice, service, slice_port


class Warned:
    """A dispatcher with ServiceWarnings, as the daemon has it, without a kernel."""

    def __init__(self) -> None:
        (states,) = states_after_batches(Config(NODE), ())
        self.states = tuple(states.values())
        self.warnings = ServiceWarnings(
            ServiceProblems(lambda name: itertools.chain.from_iterable(state.slices(name) for state in self.states))
        )
        self.dispatcher = Dispatcher(Config(NODE), self.states, self.warnings)

    def add(self, items: Iterable[Service | EndpointSlice]) -> None:
        self.dispatcher.handle(ObjectChange(None, item) for item in items)


def _service(name: str) -> Service:
    return service(name, selector=Selector())


def test_one_line_for_each_kind_of_problem(caplog: pytest.LogCaptureFixture) -> None:
    warned = Warned()
    warned.add(_service(f"a{number:04}") for number in range(BATCH + 5))
    warned.add(_service(f"b{number}") for number in range(2))
    ports = [slice_port("other")]
    warned.add(endpoint_slice(f"b{number}", "10.244.0.1", service=f"b{number}", ports=ports) for number in range(2))
    warned.warnings.log_due(0.0)
    assert caplog.messages == []
    warned.warnings.log_due(60.0)
    no_slices, no_ports = caplog.messages
    assert no_slices.startswith(f"{BATCH + 5} Services have no EndpointSlice: Service default/a0000 has a selector")
    assert no_slices.endswith(f"; and {BATCH + 2} more")
    assert no_ports.startswith("2 Services have a port that no EndpointSlice has: Service default/b0 has port")
    warned.warnings.log_due(120.0)
    assert len(caplog.messages) == 2
    with caplog.at_level(logging.INFO):
        warned.add(endpoint_slice(f"a{number:04}", "10.244.0.1", service=f"a{number:04}") for number in range(4))
        warned.add([endpoint_slice("more", "10.244.0.1", service="b1")])
        warned.warnings.log_due(130.0)
        warned.warnings.log_due(140.0)
    ended = "; ".join(f"Service default/a000{number} has no EndpointSlice" for number in range(3))
    assert caplog.messages[2:] == [
        f"no longer: 4 problems: {ended}; and 1 more",
        "no longer: Service default/b1 has a port that no EndpointSlice has",
    ]


def test_changes_wait_for_one_batch_only() -> None:
    """Both when Services are checked, and when they are checked again after a minute."""
    checked = itertools.count()
    held: list[int] = []

    class CountingLock:
        """Counts the checks while it is held."""

        def __enter__(self) -> None:
            self._first = next(checked)

        def __exit__(self, *_: object) -> None:
            held.append(next(checked) - self._first - 1)

    def slices_of(_: NamespacedName) -> Iterator[EndpointSlice]:
        next(checked)
        return iter(())

    warnings = ServiceWarnings(ServiceProblems(slices_of))
    vars(warnings)["_lock"] = CountingLock()
    for number in range(2 * BATCH + 5):
        warnings.record(None, _service(f"s{number}"))
    for now in (0.0, 60.0):
        held.clear()
        warnings.log_due(now)
        assert [count for count in held if count] == [BATCH, BATCH, 5]


def test_slices_of_either_family_and_pending_ones_count(caplog: pytest.LogCaptureFixture) -> None:
    warned = Warned()
    warned.add([_service("web"), endpoint_slice("web-1", "fd00::1", family="IPv6")])
    warned.warnings.log_due(0.0, grace=0.0)
    for state in warned.states:
        state.drain()
    warned.add([endpoint_slice("web-2", "10.244.0.1")])
    warned.warnings.log_due(1.0, grace=0.0)
    assert caplog.messages == []


def test_services_of_other_proxies_are_not_checked(caplog: pytest.LogCaptureFixture) -> None:
    warned = Warned()
    warned.add([service("web", selector=Selector(), cluster_ip="None")])
    warned.warnings.log_due(0.0, grace=0.0)
    assert caplog.messages == []
