"""``knft history SERVICE:PORT`` accepts a port's number, and tells which ports are unknown."""

import pytest

from knft.cli.history import resolve
from knft.cli.history_text import Selection, format_history
from knft.control.messages import History
from knft.model.objects import ObjectMeta, Service, ServicePortSpec, ServiceSpec
from tests.cli.example_status import HISTORY

PORTS = (ServicePortSpec(80, "http"), ServicePortSpec(80, "quic", "UDP"), ServicePortSpec(443, "https"))
WEB = Service(ObjectMeta(name="web", namespace="shop"), ServiceSpec(ports=PORTS))


@pytest.mark.parametrize(("port", "names"), [("80", ("http", "quic")), ("https", ("https",))])
def test_a_port_is_selected_by_number_or_name(port: str, names: tuple[str, ...]) -> None:
    selection, unknown = resolve(Selection("shop/web", port), History(()), [WEB])
    assert (selection.port_names, unknown) == (names, ())


def test_an_unknown_port_is_reported_with_the_known_ones() -> None:
    _, unknown = resolve(Selection("shop/web", "nope"), History(()), [WEB])
    assert unknown == (
        "Service shop/web has no port 'nope', only 'http' (80/tcp), 'quic' (80/udp) and 'https' (443/tcp)",
    )


def test_only_the_selected_service_is_looked_up() -> None:
    """Without a port, one that has no changes is known; another namespace may have a Service with its name."""
    other = Service(ObjectMeta(name="web", namespace="default"), ServiceSpec(ports=(ServicePortSpec(80, "other"),)))
    assert resolve(Selection("shop/web"), History(()), [other, WEB]) == (Selection("shop/web"), ())
    selection, _ = resolve(Selection("shop/web", "80"), History(()), [other, WEB])
    assert selection.port_names == ("http", "quic")


@pytest.mark.parametrize(
    ("ports", "expected"),
    [
        ((), "Service shop/web has no ports, so knft has no rules for it"),
        ((ServicePortSpec(80),), "Service shop/web has no port 'nope', only 80/tcp"),
    ],
)
def test_text_is_that_of_the_unknown_port_alone(ports: tuple[ServicePortSpec, ...], expected: str) -> None:
    """The port may have had changes under another name."""
    service = Service(ObjectMeta(name="web", namespace="shop"), ServiceSpec(ports=ports))
    selection, unknown = resolve(Selection("shop/web", "nope"), History(()), [service])
    assert format_history(History(()), selection, None, unknown) == f"{expected}\n"


def test_the_port_of_a_deleted_service_cannot_be_looked_up() -> None:
    _, unknown = resolve(Selection("shop/web", "80"), HISTORY, [])
    assert unknown == ("the running knft no longer has Service shop/web, so its port '80' cannot be looked up",)
