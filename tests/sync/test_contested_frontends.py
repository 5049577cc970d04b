"""The log and the cost of syncs if many Services claim one frontend (docs/behaviour/ownership.md)."""

import pytest

from knft.config import Config
from knft.families import Family
from knft.model.objects import ObjectChange, Service
from knft.protocols import Protocol
from knft.sync.assemble import rendering_daemon
from knft.sync.daemon import Daemon
from tests.support.bytecode_steps import count_bytecode_steps
from tests.support.kube_objects import NODE, service, service_port

EXTERNAL = "203.0.113.9"


def _contender(number: int, protocol: Protocol = "TCP") -> Service:
    return service(f"s{number:04}", cluster_ip=f"10.96.{number >> 8}.{number & 255}", external_ips=(EXTERNAL,),
                   ports=(service_port(protocol=protocol),))  # fmt: skip


def _daemon() -> Daemon:
    return rendering_daemon(Config(NODE))[0]


def _warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    found = [record.getMessage() for record in caplog.records]
    caplog.clear()
    return found


def _loses(loser: str, owner: str) -> str:
    return (
        f"Service port default/{loser}:http does not get frontend {EXTERNAL} 80/TCP, "
        f"which Service port default/{owner}:http owns"
    )


def test_one_line_names_a_few_losing_claims_and_counts_the_rest(caplog: pytest.LogCaptureFixture) -> None:
    daemon = _daemon()
    daemon.handle(ObjectChange(None, _contender(number)) for number in range(1, 51))
    daemon.sync()
    examples = "; ".join(_loses(f"s000{number}", "s0001") for number in (2, 3, 4))
    assert _warnings(caplog) == [f"IPv4: 49 claims to frontends lose: {examples}; and 46 more"]


def test_only_new_losing_claims_are_logged(caplog: pytest.LogCaptureFixture) -> None:
    daemon, services = _daemon(), [_contender(number) for number in range(4)]
    daemon.handle([ObjectChange(None, services[1]), ObjectChange(None, services[2])])
    daemon.sync()
    assert _warnings(caplog) == [f"IPv4: {_loses('s0002', 's0001')}"]
    daemon.handle([ObjectChange(None, services[3])])
    daemon.sync()
    assert _warnings(caplog) == [f"IPv4: {_loses('s0003', 's0001')}"]
    # A new owner: only the previous one loses a frontend.
    daemon.handle([ObjectChange(None, services[0])])
    daemon.sync()
    assert _warnings(caplog) == [f"IPv4: {_loses('s0001', 's0000')}"]
    # A Service that is deleted before the sync does not lose.
    late = _contender(5)
    daemon.handle([ObjectChange(None, late), ObjectChange(late, None), ObjectChange(services[0], None)])
    daemon.sync()
    assert _warnings(caplog) == []
    daemon.handle([ObjectChange(None, services[0])])
    daemon.sync()
    assert _warnings(caplog) == [f"IPv4: {_loses('s0001', 's0000')}"]


def test_losing_claims_of_a_failed_sync_are_logged_later(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    daemon, recorders = rendering_daemon(Config(NODE))
    daemon.handle([ObjectChange(None, _contender(1)), ObjectChange(None, _contender(2))])
    with monkeypatch.context() as failing:
        failing.setattr(recorders[Family.IPV4], "read", lambda: 1 / 0)
        daemon.sync()
    caplog.clear()
    daemon.sync()
    assert _warnings(caplog) == [f"IPv4: {_loses('s0002', 's0001')}"]


@pytest.mark.parametrize("protocol", ["TCP", "UDP"])
def test_change_costs_the_same_with_many_losing_claims(protocol: Protocol) -> None:
    """Counts the bytecode instructions of the change of one contender, from the event to the commit."""

    def change(count: int) -> int:
        daemon = _daemon()
        daemon.handle(ObjectChange(None, _contender(number, protocol)) for number in range(count))
        daemon.sync()
        last = _contender(count - 1, protocol)

        def work() -> None:
            daemon.handle([ObjectChange(last, None)])
            daemon.sync()
            daemon.handle([ObjectChange(None, last)])
            daemon.sync()

        work()
        return count_bytecode_steps(work)

    assert change(512) < change(64) * 1.05
