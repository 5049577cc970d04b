"""Fixtures: certificate authorities, a fake API server, and a ``knft run`` process in its network namespace."""

import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.api_server_knft import NODE, ApiServerKnft
from tests.support.certificates import CertificateAuthority
from tests.support.fake_api.cluster import endpoint_slice, node, service
from tests.support.fake_api.server import FakeApiServer
from tests.support.lab.links import netlink
from tests.support.lab.namespace import Namespace


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> CertificateAuthority:
    return CertificateAuthority(tmp_path_factory.mktemp("ca"), "ca")


@pytest.fixture(scope="module")
def other_authority(tmp_path_factory: pytest.TempPathFactory) -> CertificateAuthority:
    return CertificateAuthority(tmp_path_factory.mktemp("other-ca"), "other-ca")


@pytest.fixture
def capture_info_log(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "knft")


@pytest.fixture
def namespace() -> Iterator[Namespace]:
    made = Namespace.create("cluster")
    with netlink(made) as link:
        link.up("lo")
    yield made
    made.close()


@pytest.fixture
def server(namespace: Namespace) -> Iterator[FakeApiServer]:
    with namespace.entered():
        server = FakeApiServer()
    with server:
        server.cluster.put("nodes", node(NODE, "192.0.2.11"))
        server.cluster.put("services", service("web", 7))
        server.cluster.put("endpointslices", endpoint_slice("web-1", "web", "10.244.1.5"))
        yield server


@pytest.fixture
def knft(namespace: Namespace, server: FakeApiServer, tmp_path: Path) -> ApiServerKnft:
    return ApiServerKnft(namespace, server, tmp_path, "--min-sync-period=0")
