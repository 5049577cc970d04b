"""Certificates of the API server and of knft, with real files and real TLS."""

import base64
import json
import os
import tempfile
from pathlib import Path

import pytest

from knft.apiserver.api_client import ApiClient
from knft.configuration.settings import ClientSettings
from knft.errors import ApiServerError
from tests.apiserver.kubeconfigs import (
    PLUGIN_VERSION,
    one_service_cluster,
    replace_in_cluster_files,
    write_in_cluster_files,
    write_kubeconfig,
)
from tests.apiserver.log_records import warnings
from tests.apiserver.running_source import running_source
from tests.support.certificates import CertificateAuthority
from tests.support.fake_api.responses import respond_status
from tests.support.fake_api.server import FakeApiServer

pytestmark = pytest.mark.usefixtures("capture_info_log")


def test_replaced_ca_file_is_used(
    tmp_path: Path,
    authority: CertificateAuthority,
    other_authority: CertificateAuthority,
    caplog: pytest.LogCaptureFixture,
) -> None:
    with FakeApiServer(one_service_cluster(), tls=authority.server()) as server:
        in_cluster = write_in_cluster_files(tmp_path, server, other_authority, "token")
        with running_source(server, in_cluster=in_cluster) as run:
            run.wait_until(lambda: warnings(caplog), "a warning")
            assert "the server's certificate is not trusted" in warnings(caplog)[0]
            assert not server.requests
            replace_in_cluster_files(tmp_path, authority, "token")
            assert run.source.wait_all_listed(20)
    assert len(warnings(caplog)) == 1


def test_replaced_kubeconfig_ca_data_is_used(
    tmp_path: Path,
    authority: CertificateAuthority,
    other_authority: CertificateAuthority,
    caplog: pytest.LogCaptureFixture,
) -> None:
    with FakeApiServer(one_service_cluster(), tls=authority.server()) as server:

        def write(ca: CertificateAuthority) -> Path:
            data = base64.b64encode(ca.path.read_bytes()).decode()
            return write_kubeconfig(tmp_path, cluster={"server": server.url, "certificate-authority-data": data})

        settings = ClientSettings(kubeconfig=str(write(other_authority)), qps=0)
        with running_source(server, settings=settings) as run:
            run.wait_until(lambda: warnings(caplog), "a warning")
            write(authority)
            assert run.source.wait_all_listed(20)


def test_server_certificate_for_another_name_is_refused(
    tmp_path: Path, authority: CertificateAuthority, caplog: pytest.LogCaptureFixture
) -> None:
    with FakeApiServer(one_service_cluster(), tls=authority.server(names="DNS:elsewhere")) as server:
        in_cluster = write_in_cluster_files(tmp_path, server, authority, "token")
        with running_source(server, in_cluster=in_cluster) as run:
            run.wait_until(lambda: warnings(caplog), "a warning")
            assert "the server's certificate is not trusted: IP address mismatch" in warnings(caplog)[0]


def test_client_certificate_files_are_used(tmp_path: Path, authority: CertificateAuthority) -> None:
    mine = authority.sign("me")
    with FakeApiServer(one_service_cluster(), tls=authority.server(asks_clients=True)) as server:
        data = base64.b64encode(authority.path.read_bytes()).decode()
        path = write_kubeconfig(
            tmp_path,
            cluster={"server": server.url, "certificate-authority-data": data},
            user={"client-certificate": os.path.relpath(mine.certificate, tmp_path), "client-key": str(mine.key)},
        )
        with running_source(server, settings=ClientSettings(kubeconfig=str(path), qps=0)) as run:
            assert run.source.wait_all_listed(20)
            run.stop.set()
            assert run.source.join(20)


def test_server_without_tls_is_logged(
    tmp_path: Path, authority: CertificateAuthority, caplog: pytest.LogCaptureFixture
) -> None:
    with FakeApiServer(one_service_cluster()) as server:
        in_cluster = write_in_cluster_files(tmp_path, server, authority, "token")
        with running_source(server, in_cluster=in_cluster) as run:
            run.wait_until(lambda: warnings(caplog), "a warning")
    assert "TLS error" in warnings(caplog)[0]


def inline(path: Path) -> str:
    return base64.b64encode(path.read_bytes()).decode()


def test_inline_certificates_need_no_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, authority: CertificateAuthority
) -> None:
    """A process that is killed while it uses them leaves none. Each stream opens a new connection."""
    monkeypatch.setattr(tempfile, "tempdir", "/nowhere")
    mine = authority.sign("me")
    with FakeApiServer(one_service_cluster(), tls=authority.server(asks_clients=True)) as server:
        path = write_kubeconfig(
            tmp_path,
            cluster={"server": server.url, "certificate-authority-data": inline(authority.path)},
            user={"client-certificate-data": inline(mine.certificate), "client-key-data": inline(mine.key)},
        )
        client = ApiClient(ClientSettings(kubeconfig=str(path)))
        for _ in range(2):
            with client.stream("/api/v1/services", [("watch", "true")]):
                pass
        client._transport.reload(client._transport.request_target())
        client.request("GET", "/api/v1/services")
        assert len(server.requests) == 3
        client.close()


def test_insecure_skip_tls_verify(tmp_path: Path, authority: CertificateAuthority) -> None:
    with FakeApiServer(one_service_cluster(), tls=authority.server(names="DNS:elsewhere")) as server:
        for trusting in (True, False):
            cluster = {"server": server.url, "insecure-skip-tls-verify": trusting}
            client = ApiClient(ClientSettings(kubeconfig=str(write_kubeconfig(tmp_path, cluster=cluster))))
            if trusting:
                client.request("GET", "/api/v1/services")
            else:
                with pytest.raises(ApiServerError, match="the server's certificate is not trusted"):
                    client.request("GET", "/api/v1/services")
            client.close()


def test_plugin_certificates_are_renewed(tmp_path: Path, authority: CertificateAuthority) -> None:
    """The plugin runs again when the server refuses its certificate."""

    def plugin_returns(name: str) -> None:
        mine = authority.sign(name)
        status = {"clientCertificateData": mine.certificate.read_text(), "clientKeyData": mine.key.read_text()}
        credential = {"apiVersion": PLUGIN_VERSION, "kind": "ExecCredential", "status": status}
        (tmp_path / "credential").write_text(json.dumps(credential))

    plugin_returns("one")
    with FakeApiServer(one_service_cluster(), tls=authority.server(asks_clients=True)) as server:
        plugin = {"apiVersion": PLUGIN_VERSION, "command": "cat", "args": [str(tmp_path / "credential")]}
        path = write_kubeconfig(
            tmp_path,
            cluster={"server": server.url, "certificate-authority": str(authority.path)},
            user={"exec": plugin},
        )
        client = ApiClient(ClientSettings(kubeconfig=str(path)))
        client.request("GET", "/api/v1/services")
        first = client._transport.request_target().pool_manager
        plugin_returns("another")
        server.respond_next("", respond_status(401, "who?"))
        client.request("GET", "/api/v1/services")
        assert client._transport.request_target().pool_manager is not first
        client.close()
