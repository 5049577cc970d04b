"""Fields of a kubeconfig and of a pod that decide how requests are sent: proxy, basic auth, TLS name, plugin input."""

import base64
import json
from pathlib import Path
from typing import Any

import pytest

from knft.apiserver.api_client import ApiClient
from knft.apiserver.proxy import proxy_for
from knft.configuration.settings import ClientSettings
from knft.errors import UsageError
from tests.apiserver.kubeconfigs import (
    PLUGIN_VERSION,
    insecure_settings,
    one_service_cluster,
    write_in_cluster_files,
    write_kubeconfig,
)
from tests.support.certificates import CertificateAuthority
from tests.support.fake_api.server import FakeApiServer

PROXY_VARIABLES = ("http_proxy", "https_proxy", "all_proxy", "no_proxy")


@pytest.fixture(autouse=True)
def _no_proxy_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in PROXY_VARIABLES:
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)


def connect(path: Path) -> ApiClient:
    return ApiClient(insecure_settings(path))


@pytest.mark.parametrize(
    ("no_proxy", "server", "is_proxied"),
    [
        ("", "https://10.0.0.1:6443", True),
        ("10.0.0.0/8", "https://10.0.0.1:6443", False),
        ("10.0.0.2,10.0.0.1", "https://10.0.0.1:6443", False),
        ("10.0.0.1:443", "https://10.0.0.1:6443", True),
        ("10.0.0.1:6443", "https://10.0.0.1:6443", False),
        ("fd00::/8", "https://[fd00::1]:6443", False),
        (".example.org", "https://api.example.org", False),
        ("example.org", "https://example.org", False),
        ("ample.org", "https://api.example.org", True),
        ("*", "https://example.org", False),
    ],
)
def test_hosts_in_no_proxy_bypass_the_proxy(
    no_proxy: str,
    server: str,
    is_proxied: bool,  # noqa: FBT001 - a column of the table
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("NO_PROXY", no_proxy)
    assert proxy_for(server, "http://proxy:1") == ("http://proxy:1" if is_proxied else "")


def test_proxy_of_the_environment_depends_on_the_scheme(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTPS_PROXY", "http://secure:1")
    assert proxy_for("https://a", "") == "http://secure:1"
    assert proxy_for("http://a", "") == ""
    monkeypatch.setenv("ALL_PROXY", "http://all:1")
    assert proxy_for("http://a", "") == "http://all:1"
    assert proxy_for("https://a", "http://configured:1") == "http://configured:1"


def test_requests_use_the_proxy_of_the_kubeconfig(tmp_path: Path) -> None:
    with FakeApiServer(one_service_cluster()) as proxy:
        cluster = {"server": "http://192.0.2.1:1", "proxy-url": proxy.url}
        client = connect(write_kubeconfig(tmp_path, cluster=cluster))
        client.request("GET", "/api/v1/services")
        assert proxy.requests[0].headers["Host"] == "192.0.2.1:1"
        client.close()


def test_basic_auth_is_sent(tmp_path: Path) -> None:
    with FakeApiServer(one_service_cluster()) as server:
        user = {"username": "me", "password": "secret"}
        client = connect(write_kubeconfig(tmp_path, cluster={"server": server.url}, user=user))
        client.request("GET", "/api/v1/services")
        encoded = base64.b64encode(b"me:secret").decode()
        assert server.requests[0].headers["Authorization"] == f"Basic {encoded}"
        client.close()


def test_token_has_precedence_over_plugin_and_basic_auth(tmp_path: Path) -> None:
    with FakeApiServer(one_service_cluster()) as server:
        plugin = {"apiVersion": PLUGIN_VERSION, "command": "false"}
        user = {"token": "t", "exec": plugin, "username": "me", "password": "secret"}
        client = connect(write_kubeconfig(tmp_path, cluster={"server": server.url}, user=user))
        client.request("GET", "/api/v1/services")
        assert server.requests[0].headers["Authorization"] == "Bearer t"
        client.close()


CREDENTIAL = json.dumps({"apiVersion": PLUGIN_VERSION, "kind": "ExecCredential", "status": {"token": "t"}})


@pytest.mark.parametrize("proxy", ["", "http://proxy:1"])
@pytest.mark.parametrize(
    ("user", "field"),
    [
        ({"token": "a-secret"}, "user.token"),
        ({"username": "me", "password": "a-secret"}, "user"),
        ({"exec": {"apiVersion": PLUGIN_VERSION, "command": "echo", "args": [CREDENTIAL]}}, "user.exec: 'echo'"),
    ],
)
def test_credentials_are_not_sent_without_tls(tmp_path: Path, user: dict[str, Any], field: str, proxy: str) -> None:
    path = write_kubeconfig(tmp_path, cluster={"server": "http://192.0.2.1:1", "proxy-url": proxy}, user=user)
    with pytest.raises(UsageError) as raised:
        ApiClient(ClientSettings(kubeconfig=str(path)))
    target = "http://192.0.2.1:1" + (" through the proxy http://proxy:1" if proxy else "")
    assert str(raised.value) == (
        f"kubeconfig {path}, context 'here': {field}: the credentials would be sent to {target} "
        "without TLS; use an https:// server, or give --insecure-send-credentials-without-tls"
    )
    ApiClient(insecure_settings(path)).close()


def test_master_without_tls_gets_no_credentials(tmp_path: Path) -> None:
    path = write_kubeconfig(tmp_path)
    with pytest.raises(UsageError, match=r"the credentials would be sent to http://192\.0\.2\.1:1 without TLS"):
        ApiClient(ClientSettings(kubeconfig=str(path), server="http://192.0.2.1:1"))


def test_server_without_tls_is_used_without_credentials(tmp_path: Path) -> None:
    with FakeApiServer(one_service_cluster()) as server:
        path = write_kubeconfig(tmp_path, cluster={"server": server.url}, user={})
        client = ApiClient(ClientSettings(kubeconfig=str(path)))
        client.request("GET", "/api/v1/services")
        client.close()
    assert "Authorization" not in server.requests[0].headers


def test_kubeconfig_that_loses_tls_is_not_used(tmp_path: Path, authority: CertificateAuthority) -> None:
    tls = authority.server()
    with FakeApiServer(one_service_cluster(), tls=tls) as server, FakeApiServer(one_service_cluster()) as plain:
        write_kubeconfig(tmp_path, cluster={"server": server.url, "certificate-authority": str(authority.path)})
        client = ApiClient(ClientSettings(kubeconfig=str(tmp_path / "kubeconfig")))
        write_kubeconfig(tmp_path, cluster={"server": plain.url})
        client.request("GET", "/api/v1/services")
        client.close()
    assert len(server.requests) == 1
    assert not plain.requests


def test_tls_server_name_is_verified(tmp_path: Path, authority: CertificateAuthority) -> None:
    with FakeApiServer(one_service_cluster(), tls=authority.server(names="DNS:elsewhere")) as server:
        cluster = {
            "server": server.url,
            "certificate-authority": str(authority.path),
            "tls-server-name": "elsewhere",
        }
        client = connect(write_kubeconfig(tmp_path, cluster=cluster))
        client.request("GET", "/api/v1/services")
        client.close()


def test_plugin_gets_environment_folder_and_cluster(tmp_path: Path) -> None:
    credential = {"apiVersion": PLUGIN_VERSION, "kind": "ExecCredential", "status": {"token": "t"}}
    script = f"echo $SETTING > setting; printf '%s' \"$KUBERNETES_EXEC_INFO\" > info; echo '{json.dumps(credential)}'"
    extension = {"name": "client.authentication.k8s.io/exec", "extension": {"audience": "a"}}
    cluster = {"server": "http://192.0.2.1:1", "extensions": [extension]}
    plugin = {
        "apiVersion": PLUGIN_VERSION,
        "command": "sh",
        "args": ["-c", script],
        "env": [{"name": "SETTING", "value": "x"}],
        "provideClusterInfo": True,
    }
    connect(write_kubeconfig(tmp_path, cluster=cluster, user={"exec": plugin})).close()
    assert (tmp_path / "setting").read_text() == "x\n"
    info = json.loads((tmp_path / "info").read_text())
    assert (info["apiVersion"], info["kind"]) == (PLUGIN_VERSION, "ExecCredential")
    assert (info["spec"]["cluster"]["server"], info["spec"]["cluster"]["config"]) == (
        "http://192.0.2.1:1",
        {"audience": "a"},
    )


def test_ipv6_service_host_gets_brackets_in_the_url(tmp_path: Path, authority: CertificateAuthority) -> None:
    with FakeApiServer(one_service_cluster()) as server:
        in_cluster = write_in_cluster_files(tmp_path, server, authority, "token")
    environment = {"KUBERNETES_SERVICE_HOST": "fd00::1", "KUBERNETES_SERVICE_PORT": "443"}
    in_cluster = in_cluster._replace(environment=environment)
    assert ApiClient(ClientSettings(), in_cluster=in_cluster).server == "https://[fd00::1]:443"


def test_several_yaml_documents_are_refused(tmp_path: Path) -> None:
    path = write_kubeconfig(tmp_path)
    path.write_text(f"{path.read_text()}---\nkind: Config\n")
    with pytest.raises(UsageError, match="expected one YAML document, found 2"):
        connect(path)


def test_duplicate_key_is_logged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = write_kubeconfig(tmp_path)
    path.write_text(f"{path.read_text()}kind: Config\n")
    connect(path)
    assert any(str(path) in line and "'kind'" in line for line in caplog.messages)
