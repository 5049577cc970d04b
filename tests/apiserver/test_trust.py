"""Certificates, of the API server and of knft, by real files and real TLS."""

import base64
import json
import os
import tempfile
from pathlib import Path

import pytest

from knft.apiserver.connection import Connection
from knft.configuration.settings import ClientSettings
from knft.errors import ClusterError
from tests.apiserver.answers import refuse
from tests.apiserver.certificates import Authority
from tests.apiserver.following import following
from tests.apiserver.kubeconfigs import PLUGIN_VERSION, in_pod, kubeconfig, one, rotate
from tests.apiserver.logged import warnings
from tests.apiserver.server import ApiServer

pytestmark = pytest.mark.usefixtures("info")


def test_a_wrong_ca_is_a_warning_until_it_is_the_right_one(
    tmp_path: Path, authority: Authority, other_authority: Authority, caplog: pytest.LogCaptureFixture
) -> None:
    with ApiServer(one(), tls=authority.server()) as server:
        pod = in_pod(tmp_path, server, other_authority, "token")
        with following(server, pod=pod) as it:
            it.until(lambda: warnings(caplog), "a warning")
            assert "its certificate is not trusted" in warnings(caplog)[0]
            assert not server.asked
            rotate(tmp_path, authority, "token")
            assert it.source.wait_synced(20)
    assert len(warnings(caplog)) == 1


def test_a_ca_in_a_kubeconfig_that_is_exchanged(
    tmp_path: Path, authority: Authority, other_authority: Authority, caplog: pytest.LogCaptureFixture
) -> None:
    with ApiServer(one(), tls=authority.server()) as server:

        def write(ca: Authority) -> Path:
            data = base64.b64encode(ca.path.read_bytes()).decode()
            return kubeconfig(tmp_path, cluster={"server": server.url, "certificate-authority-data": data})

        settings = ClientSettings(kubeconfig=str(write(other_authority)), qps=0)
        with following(server, settings=settings) as it:
            it.until(lambda: warnings(caplog), "a warning")
            write(authority)
            assert it.source.wait_synced(20)


def test_a_certificate_for_another_name(tmp_path: Path, authority: Authority, caplog: pytest.LogCaptureFixture) -> None:
    with ApiServer(one(), tls=authority.server(names="DNS:elsewhere")) as server:
        pod = in_pod(tmp_path, server, authority, "token")
        with following(server, pod=pod) as it:
            it.until(lambda: warnings(caplog), "a warning")
            assert "its certificate is not trusted: IP address mismatch" in warnings(caplog)[0]


def test_client_certificates_of_a_kubeconfig(tmp_path: Path, authority: Authority) -> None:
    mine = authority.sign("me")
    with ApiServer(one(), tls=authority.server(asks_clients=True)) as server:
        data = base64.b64encode(authority.path.read_bytes()).decode()
        path = kubeconfig(
            tmp_path,
            cluster={"server": server.url, "certificate-authority-data": data},
            user={"client-certificate": os.path.relpath(mine.certificate, tmp_path), "client-key": str(mine.key)},
        )
        with following(server, settings=ClientSettings(kubeconfig=str(path), qps=0)) as it:
            assert it.source.wait_synced(20)
            it.stop.set()
            assert it.source.join(20)


def test_a_server_that_speaks_no_tls(tmp_path: Path, authority: Authority, caplog: pytest.LogCaptureFixture) -> None:
    with ApiServer(one()) as server:
        pod = in_pod(tmp_path, server, authority, "token")
        with following(server, pod=pod) as it:
            it.until(lambda: warnings(caplog), "a warning")
    assert "TLS fails" in warnings(caplog)[0]


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the folder that temporary files go to."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    return folder


def inline(path: Path) -> str:
    return base64.b64encode(path.read_bytes()).decode()


def test_nothing_is_left_of_certificates_in_a_kubeconfig(tmp_path: Path, temporary: Path, authority: Authority) -> None:
    """And nothing of them is needed any more: each connection is a new one."""
    mine = authority.sign("me")
    with ApiServer(one(), tls=authority.server(asks_clients=True)) as server:
        path = kubeconfig(
            tmp_path,
            cluster={"server": server.url, "certificate-authority-data": inline(authority.path)},
            user={"client-certificate-data": inline(mine.certificate), "client-key-data": inline(mine.key)},
        )
        connection = Connection(ClientSettings(kubeconfig=str(path)))
        assert not list(temporary.iterdir())
        for _ in range(2):
            with connection.stream("/api/v1/services", [("watch", "true")]):
                pass
        connection._access.renew(connection._access.way())
        connection.request("GET", "/api/v1/services")
        assert not list(temporary.iterdir())
        assert len(server.asked) == 3
        connection.close()


def test_a_server_that_need_not_be_trusted(tmp_path: Path, authority: Authority) -> None:
    with ApiServer(one(), tls=authority.server(names="DNS:elsewhere")) as server:
        for trusting in (True, False):
            cluster = {"server": server.url, "insecure-skip-tls-verify": trusting}
            connection = Connection(ClientSettings(kubeconfig=str(kubeconfig(tmp_path, cluster=cluster))))
            if trusting:
                connection.request("GET", "/api/v1/services")
            else:
                with pytest.raises(ClusterError, match="its certificate is not trusted"):
                    connection.request("GET", "/api/v1/services")
            connection.close()


def test_certificates_of_a_plugin_are_exchanged(tmp_path: Path, temporary: Path, authority: Authority) -> None:
    """It is asked again where the server does not take what it gave."""

    def gives(name: str) -> None:
        mine = authority.sign(name)
        status = {"clientCertificateData": mine.certificate.read_text(), "clientKeyData": mine.key.read_text()}
        credential = {"apiVersion": PLUGIN_VERSION, "kind": "ExecCredential", "status": status}
        (tmp_path / "credential").write_text(json.dumps(credential))

    gives("one")
    with ApiServer(one(), tls=authority.server(asks_clients=True)) as server:
        plugin = {"apiVersion": PLUGIN_VERSION, "command": "cat", "args": [str(tmp_path / "credential")]}
        path = kubeconfig(
            tmp_path,
            cluster={"server": server.url, "certificate-authority": str(authority.path)},
            user={"exec": plugin},
        )
        connection = Connection(ClientSettings(kubeconfig=str(path)))
        connection.request("GET", "/api/v1/services")
        first = connection._access.way().pools
        gives("another")
        server.demand("", refuse(401, "who?"))
        connection.request("GET", "/api/v1/services")
        assert connection._access.way().pools is not first
        assert not list(temporary.iterdir())
        connection.close()
