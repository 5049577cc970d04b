"""``knft history SERVICE:PORT`` accepts a port's number, and tells which ports are unknown."""

import pytest

from knft.cli.history import resolve
from knft.cli.history_text import Selection
from knft.control.messages import History
from knft.model.objects import ObjectMeta, Service, ServicePortSpec, ServiceSpec
from tests.cli.test_status_text import HISTORY

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


def test_the_port_of_a_deleted_service_cannot_be_looked_up() -> None:
    _, unknown = resolve(Selection("shop/web", "80"), HISTORY, [])
    assert unknown == ("the running knft no longer has Service shop/web, so its port '80' cannot be looked up",)
