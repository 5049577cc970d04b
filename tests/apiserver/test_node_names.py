"""The message about a missing Node lists the Nodes of the cluster, as far as the server tells them."""

import pytest

from knft.apiserver.api_client import ApiClient
from knft.apiserver.node_names import describe_nodes
from knft.configuration.settings import ClientSettings
from tests.support.fake_api.cluster import node
from tests.support.fake_api.responses import respond_status
from tests.support.fake_api.server import FakeApiServer


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, ""),
        (2, "the Nodes are node-000, node-001"),
        (25, "the Nodes are node-000, node-001, node-002, node-003, node-004 and 20 more"),
    ],
)
def test_nodes_are_listed_and_counted(count: int, text: str) -> None:
    with FakeApiServer() as server:
        for number in range(count):
            server.cluster.put("nodes", node(f"node-{number:03}", "192.0.2.1"))
        assert describe_nodes(ApiClient(ClientSettings(server=server.url))) == text
        assert [request.query for request in server.requests] == [{"limit": "20"}]


def test_refused_list_has_no_text() -> None:
    """RBAC may restrict the list; the message then names only the missing Node."""
    with FakeApiServer() as server:
        server.respond_next("list nodes", respond_status(403))
        assert describe_nodes(ApiClient(ClientSettings(server=server.url))) == ""
