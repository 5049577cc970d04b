"""The text of ``knft history`` at 80 and 200 columns, and piped; and the selection of changes."""

from typing import Any

import pytest
from msgspec import structs

from knft.cli.history import endpoint_name, selector, service_name, since_text, since_time, unknown_service
from knft.cli.history_text import Selection, format_history
from knft.cli.status_text import format_status
from knft.control.messages import (
    History,
    TableChange,
)
from knft.errors import UsageError
from knft.model.names import NamespacedName
from tests.cli.example_status import CHANGE, HISTORY, NOON, SERVICE_DELETED, STATES, WIDTHS, golden


@pytest.mark.parametrize(
    ("gained", "lost", "more", "expected"),
    [
        (("b:1",), ("a:1", "a:2"), (0, 0), "lost a:1, a:2; gained b:1"),
        (("b:1",), ("a:1",), (1, 0), "lost a:1; gained b:1 and 1 more endpoint"),
        ((), ("a:1", "a:2"), (300, 2), "lost a:1, a:2 and 2 more endpoints; gained 300 endpoints"),
    ],
)
def test_endpoints_that_a_change_does_not_list_are_gained_or_lost(
    gained: tuple[str, ...], lost: tuple[str, ...], more: tuple[int, int], expected: str
) -> None:
    change = structs.replace(CHANGE, gained=gained, lost=lost, gained_not_listed=more[0], lost_not_listed=more[1])
    line = format_history(History((change,)), Selection(), None).splitlines()[0]
    assert line.endswith(f"  shop/web:http (TCP, IPv4): {expected}")


@pytest.mark.parametrize("width", WIDTHS)
def test_text_of_a_history(width: str) -> None:
    assert format_history(HISTORY, Selection(), WIDTHS[width]) == golden(f"history-{width}")


@pytest.mark.parametrize("width", WIDTHS)
def test_history_of_an_endpoint_begins_with_its_conclusion(width: str) -> None:
    found = History((CHANGE,))
    assert format_history(found, Selection(endpoint="10.244.1.20"), WIDTHS[width]) == golden(
        f"history-endpoint-{width}"
    )


@pytest.mark.parametrize("width", [80, 200])
def test_lines_fit_the_terminal(width: int) -> None:
    texts = [format_status(status, width) for status in STATES.values()]
    texts += [
        format_history(HISTORY, Selection(), width),
        format_history(HISTORY, Selection(endpoint="10.244.1.20"), width),
    ]
    assert max(len(line) for text in texts for line in text.splitlines()) <= width


def test_first_line_of_a_history_names_the_node() -> None:
    assert format_history(History((), node="node-1"), Selection("shop/db"), None).splitlines() == [
        "node node-1",
        "knft has no changes of Service shop/db",
    ]


def test_history_of_an_endpoint_that_may_not_be_listed() -> None:
    text = format_history(History((CHANGE, SERVICE_DELETED)), Selection(endpoint="10.244.1.20"), None)
    conclusions, _ = text.split("\n\n")
    assert conclusions.splitlines()[1:] == [
        "10.244.1.20 may be among the endpoints that are not listed in 1 change, printed below"
    ]
    assert "10.244.1.99 left" not in format_history(
        History((SERVICE_DELETED,)), Selection(endpoint="10.244.1.99"), None
    )


def test_empty_history() -> None:
    assert format_history(History(()), Selection(), None) == "no such change since the start of knft\n"
    assert format_history(History((), dropped=1), Selection(endpoint="10.0.0.1"), None) == (
        "1 older change dropped: knft keeps the last ones in bounded memory\nno such change of endpoint 10.0.0.1\n"
    )


@pytest.mark.parametrize(
    ("selection", "expected"),
    [
        ({"service": "shop/db"}, "knft has no changes of Service shop/db"),
        ({"service": "shop/db", "port": "sql"}, "knft has no changes of Service port shop/db:sql"),
        (
            {"service": "shop/db", "since_text": "in the last 5m"},
            "knft has no changes of Service shop/db in the last 5m",
        ),
        (
            {"service": "shop/db", "endpoint": "10.0.0.1"},
            "knft has no changes of Service shop/db of endpoint 10.0.0.1",
        ),
        ({"since_text": "in the last 1s"}, "no such change in the last 1s"),
        (
            {"since_text": "since 2026-11-24T12:00:00Z", "endpoint": "10.0.0.1"},
            "no such change of endpoint 10.0.0.1 since 2026-11-24T12:00:00Z",
        ),
    ],
    ids=str,
)
def test_history_without_changes_names_what_was_asked_for(selection: dict[str, Any], expected: str) -> None:
    assert format_history(History(()), Selection(**selection), None) == f"{expected}\n"


def test_history_of_a_service_without_changes_has_those_of_tables() -> None:
    found = History((TableChange("IPv4", "nft (pid 4711) changed the table: services", NOON, NOON),))
    lines = format_history(found, Selection("shop/db"), None).splitlines()
    assert lines[0] == "knft has no changes of Service shop/db"
    assert lines[1].endswith("nft (pid 4711) changed the table: services")


def test_history_of_a_mistyped_service_names_similar_ones() -> None:
    existing = [NamespacedName("shop", "web"), NamespacedName("shop", "orders")]
    unknown = unknown_service(NamespacedName("shop", "wbe"), existing)
    assert format_history(History(()), Selection("shop/wbe"), None, unknown).splitlines() == [
        "knft has no changes of Service shop/wbe",
        (
            "the running knft has no Service shop/wbe: it does not exist, is headless, or has label "
            "service.kubernetes.io/service-proxy-name"
        ),
        "did you mean shop/web?",
    ]
    assert unknown_service(NamespacedName("shop", "web"), existing) == ()


@pytest.mark.parametrize(
    ("selection", "expected"),
    [
        ({}, "first dns change table table deleted outage forbidden failed failing"),
        ({"service": "shop/web"}, "change table table deleted outage forbidden failed failing"),
        ({"service": "shop/we"}, "table table outage forbidden failed failing"),
        ({"service": "shop/web", "port": "http"}, "change table table deleted outage forbidden failed failing"),
        ({"service": "shop/web", "port": "htt"}, "table table outage forbidden failed failing"),
        ({"service": "default/dns", "port": ""}, "dns table table outage forbidden failed failing"),
        # The last change of endpoints does not list all of its endpoints.
        ({"endpoint": "10.244.1.20"}, "change deleted"),
        ({"endpoint": "10.244.1.21:8080"}, "change deleted"),
        ({"endpoint": "10.244.1.2"}, "deleted"),
        ({"endpoint": "10.244.1.20:80"}, "deleted"),
        ({"endpoint": "10.244.1.20", "service": "default/dns"}, ""),
        ({"endpoint": "fd00::20"}, "deleted"),
        ({"endpoint": "[fd00::20]:8080"}, "deleted"),
        ({"since": NOON + 35}, "table deleted outage forbidden failed failing"),
        ({"since": NOON + 35, "service": "default/dns"}, "table outage forbidden failed failing"),
        # Failures that had not ended before.
        ({"since": NOON + 180}, "outage forbidden failed failing"),
        ({"since": NOON + 261}, "forbidden failed failing"),
        ({"since": NOON + 999}, "forbidden failing"),
    ],
    ids=str,
)
def test_selection(selection: dict[str, Any], expected: str) -> None:
    labels = "first dns change table table deleted outage forbidden failed failing"
    names = dict(zip(map(id, HISTORY.entries), labels.split(), strict=True))
    selected = filter(selector(Selection(**selection)), HISTORY.entries)
    assert " ".join(names[id(entry)] for entry in selected) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [("web", ("default/web", None)), ("shop/web", ("shop/web", None)), ("shop/web:http", ("shop/web", "http"))],
)
def test_service_names(text: str, expected: tuple[str, str | None]) -> None:
    assert service_name(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("10.244.1.20", "10.244.1.20"),
        ("10.244.1.20:80", "10.244.1.20:80"),
        ("FD00:0::20", "fd00::20"),
        ("[fd00::20]:80", "[fd00::20]:80"),
    ],
)
def test_endpoint_names(text: str, expected: str) -> None:
    assert endpoint_name(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("5m", NOON - 300),
        ("1h0m1s", NOON - 3601),
        ("2026-11-24T12:00:00Z", NOON),
        ("2026-11-24T13:00:00+01:00", NOON),
        ("2026-11-24T12:00:00", NOON),
    ],
)
def test_since(text: str, expected: float) -> None:
    assert since_time(text, NOON) == expected


@pytest.mark.parametrize(
    ("text", "expected"), [("5m", "in the last 5m"), ("2026-11-24T12:00:00Z", "since 2026-11-24T12:00:00Z")]
)
def test_since_in_words(text: str, expected: str) -> None:
    assert since_text(text) == expected


def test_invalid_selections_are_usage_errors() -> None:
    for text in ("", "/web", "shop/", "a/b/c", "shop/we b", "shop/web:", "10.96.0.1", ":30080"):
        with pytest.raises(UsageError, match="is not a Service"):
            service_name(text)
    for text in ("10.244.1", "10.244.1.20:http", "web:80", ":80", "10.0.0.1:99999999", "10.0.0.1:80/tcp", "web"):
        with pytest.raises(UsageError, match="--endpoint"):
            endpoint_name(text)
    with pytest.raises(UsageError, match="--since"):
        since_time("yesterday", NOON)
