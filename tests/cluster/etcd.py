"""Reads, writes and compacts etcd directly, without the API server; objects are stored as JSON."""

import base64
import json
from collections.abc import Iterable
from itertools import islice
from typing import Any

import urllib3

from tests.cluster.keys import Keys
from tests.support.lab.namespace import Namespace

_PREFIX = "/registry"
_MAX_OPERATIONS = 100
"""Operations of a transaction; etcd's own limit is 128."""


class EtcdStore:
    """etcd over its HTTP gateway."""

    def __init__(self, namespace: Namespace, address: str, keys: Keys) -> None:
        """Send nothing yet; the ``etcd`` certificate is for the server and for its clients."""
        self._namespace = namespace
        self._address = address
        self._pool = urllib3.PoolManager(
            ca_certs=keys.path("ca.crt"), cert_file=keys.path("etcd.crt"), key_file=keys.path("etcd.key")
        )

    def is_healthy(self) -> bool:
        """Tell whether etcd is healthy."""
        try:
            with self._namespace.entered():
                answer = self._pool.request("GET", f"{self._address}/health", timeout=2.0, retries=False)
        except urllib3.exceptions.HTTPError:
            return False
        return answer.status == 200

    def get(self, key: str) -> dict[str, Any]:
        """Return an object by its key, such as ``/services/specs/default/web``."""
        (found,) = self._call("range", {"key": _encoded(_PREFIX + key)})["kvs"]
        stored: dict[str, Any] = json.loads(base64.b64decode(found["value"]))
        return stored

    def put(self, key: str, value: dict[str, Any]) -> None:
        """Store an object without validation."""
        self._call("put", {"key": _encoded(_PREFIX + key), "value": _encoded(json.dumps(value))})

    def put_all(self, items: Iterable[tuple[str, dict[str, Any]]]) -> None:
        """Store many objects without validation, in as few transactions as etcd allows."""
        iterator = iter(items)
        while batch := list(islice(iterator, _MAX_OPERATIONS)):
            puts = [{"key": _encoded(_PREFIX + key), "value": _encoded(json.dumps(value))} for key, value in batch]
            self._call("txn", {"success": [{"requestPut": put} for put in puts]})

    def delete(self, key: str) -> None:
        """Delete an object without regard to finalizers."""
        self._call("deleterange", {"key": _encoded(_PREFIX + key)})

    def delete_all(self, prefix: str) -> None:
        """Delete all objects whose keys begin with a prefix."""
        first = (_PREFIX + prefix).encode()
        after = first[:-1] + bytes([first[-1] + 1])
        self._call("deleterange", {"key": _encoded(first.decode()), "range_end": _encoded(after.decode())})

    def revision(self) -> int:
        """Return the revision of the last change."""
        return int(self._call("range", {"key": _encoded("/")})["header"]["revision"])

    def compact(self) -> int:
        """Compact the history, so that watches from earlier revisions must list again; return the revision."""
        revision = self.revision()
        self._call("compaction", {"revision": str(revision), "physical": True})
        return revision

    def _call(self, what: str, body: dict[str, Any]) -> dict[str, Any]:
        with self._namespace.entered():
            answer = self._pool.request("POST", f"{self._address}/v3/kv/{what}", json=body, timeout=30.0)
        assert answer.status == 200, f"etcd answered {answer.status} to {what}: {answer.data!r}"
        found: dict[str, Any] = answer.json()
        return found


def _encoded(text: str) -> str:
    return base64.b64encode(text.encode()).decode()
