"""The names of the cluster's Nodes, for the message about a missing one: the name of this node may be misspelt."""

import msgspec
from msgspec import Struct

from knft.apiserver.api_client import ApiClient
from knft.decide.node_problems import shown_first
from knft.errors import ApiServerError
from knft.source.formatting import format_name

_LIMIT = 20
"""How many Nodes are requested; a Node may have 50 KB."""


class _Metadata(Struct, frozen=True):
    name: str


class _Item(Struct, frozen=True):
    metadata: _Metadata


class _ListMetadata(Struct, frozen=True, rename="camel"):
    remaining_item_count: int | None = None


class _NodeList(Struct, frozen=True):
    items: tuple[_Item, ...] | None = None
    metadata: _ListMetadata = _ListMetadata()


# Built once: see api_client.
_NODE_LIST = msgspec.json.Decoder(_NodeList)


def describe_nodes(client: ApiClient) -> str:
    """Return ``the Nodes are ...``; "" if there are none or the server does not list them."""
    try:
        body = client.request("GET", "/api/v1/nodes", [("limit", str(_LIMIT))])
        found = _NODE_LIST.decode(body)
    except (ApiServerError, msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return ""
    names = [format_name(item.metadata.name) for item in found.items or ()]
    return f"the Nodes are {shown_first(names, found.metadata.remaining_item_count or 0)}" if names else ""
