"""Invalid kubeconfigs, URLs and in-cluster files: each gives one error line, without secrets."""

import traceback
from pathlib import Path
from typing import Any

import pytest

from knft.apiserver.api_client import ApiClient
from knft.apiserver.in_cluster import PodEnvironment
from knft.configuration.settings import ClientSettings
from knft.errors import ApiServerError, UsageError
from tests.apiserver.kubeconfigs import (
    PLUGIN_VERSION,
    insecure_settings,
    one_service_cluster,
    write_in_cluster_files,
    write_kubeconfig,
)
from tests.support.certificates import CertificateAuthority
from tests.support.fake_api.responses import unused_address
from tests.support.fake_api.server import FakeApiServer

pytestmark = pytest.mark.usefixtures("capture_info_log")
CONTEXT_PREFIX = "kubeconfig {path}, context 'here': "
FILE_PREFIX = "kubeconfig {path}: "
CA_FIELD = "cluster.certificate-authority"
INVALID: dict[str, tuple[dict[str, Any], str]] = {
    "wrong kind": (
        {"kind": "Pod"},
        FILE_PREFIX + "expected kind 'Config' of apiVersion 'v1', found kind 'Pod' of 'v1'",
    ),
    "no current context": ({"current-context": ...}, FILE_PREFIX + "current-context: not set; set it to 'here'"),
    "no current context and no contexts": (
        {"current-context": "", "contexts": []},
        FILE_PREFIX + "current-context: not set; the file has no contexts",
    ),
    "current context is a number": (
        {"current-context": 5},
        FILE_PREFIX + "current-context: expected text, found a number",
    ),
    "unknown current context": (
        {"current-context": "there"},
        FILE_PREFIX + "current-context: 'there' not found in contexts; use 'here'",
    ),
    "contexts are text": ({"contexts": "here"}, FILE_PREFIX + "contexts: expected a list, found text"),
    "context without a name": (
        {"contexts": [{"context": {}}]},
        FILE_PREFIX + "contexts[0]: expected a mapping with a name",
    ),
    "two contexts of one name": (
        {"contexts": [{"name": "here", "context": {}}] * 2},
        FILE_PREFIX + "contexts: 'here' appears 2 times; keep one",
    ),
    "empty context": ({"contexts": [{"name": "here"}]}, FILE_PREFIX + "context of 'here': not set"),
    "no cluster": ({"context": {"user": "me"}}, CONTEXT_PREFIX + "context.cluster: not set"),
    "unknown cluster": (
        {"context": {"cluster": "away"}},
        CONTEXT_PREFIX + "context.cluster: 'away' not found in clusters; use 'home'",
    ),
    "no clusters": ({"clusters": ...}, CONTEXT_PREFIX + "context.cluster: 'home' not found in clusters"),
    "no server": ({"cluster": {}}, CONTEXT_PREFIX + "cluster.server: not set"),
    "server is not a URL": (
        {"cluster": {"server": "6443"}},
        CONTEXT_PREFIX + "cluster.server: '6443' is not a URL such as https://192.0.2.1:6443",
    ),
    "unknown user": (
        {"context": {"cluster": "home", "user": "you"}},
        CONTEXT_PREFIX + "context.user: 'you' not found in users; use 'me'",
    ),
    "missing CA file": (
        {"cluster": {"server": "https://a:1", "certificate-authority": "ca.crt"}},
        CONTEXT_PREFIX + CA_FIELD + ": {folder}/ca.crt: No such file or directory",
    ),
    "empty CA file": (
        {"cluster": {"server": "https://a:1", "certificate-authority": "empty"}},
        CONTEXT_PREFIX + CA_FIELD + ": {folder}/empty: the file is empty",
    ),
    "CA data is not base64": (
        {"cluster": {"server": "https://a:1", "certificate-authority-data": "###"}},
        CONTEXT_PREFIX + CA_FIELD + "-data: not valid base64",
    ),
    "missing token file": (
        {"user": {"tokenFile": "token"}},
        CONTEXT_PREFIX + "user.tokenFile: {folder}/token: No such file or directory",
    ),
    "missing client certificate": (
        {"user": {"client-certificate": "me.crt", "client-key": "me.key"}},
        CONTEXT_PREFIX + "user.client-certificate: {folder}/me.crt: No such file or directory",
    ),
    "plugin without a command": (
        {"user": {"exec": {"apiVersion": "client.authentication.k8s.io/v1"}}},
        CONTEXT_PREFIX + "user.exec.command: not set",
    ),
    "server URL without a host": (
        {"cluster": {"server": "https://:6443"}},
        CONTEXT_PREFIX + "cluster.server: 'https://:6443' is not a URL such as https://192.0.2.1:6443",
    ),
    "server URL with an invalid port": (
        {"cluster": {"server": "https://me:hidden@a:99999"}},
        CONTEXT_PREFIX + "cluster.server: 'https://a:99999' is not a URL such as https://192.0.2.1:6443",
    ),
    "proxy-url with an unsupported scheme": (
        {"cluster": {"server": "https://a:1", "proxy-url": "socks5://me:hidden@b:1"}},
        CONTEXT_PREFIX + "cluster.proxy-url: 'socks5://b:1' is not a URL such as http://192.0.2.1:3128",
    ),
    "proxy-url is a number": (
        {"cluster": {"server": "https://a:1", "proxy-url": 3128}},
        CONTEXT_PREFIX + "cluster.proxy-url: expected text, found a number",
    ),
    # A non-empty string is true in Python, so the server's certificate would not be verified.
    "insecure-skip-tls-verify is text": (
        {"cluster": {"server": "https://a:1", "insecure-skip-tls-verify": "false"}},
        CONTEXT_PREFIX + "cluster.insecure-skip-tls-verify: expected true or false, found text",
    ),
    "insecure-skip-tls-verify and a CA": (
        {"cluster": {"server": "https://a:1", "insecure-skip-tls-verify": True, "certificate-authority-data": "aGk="}},
        CONTEXT_PREFIX
        + "cluster.insecure-skip-tls-verify: cannot be combined with a certificate authority; remove one",
    ),
    "CA data is not a certificate": (
        {"cluster": {"server": "https://a:1", "certificate-authority-data": "aGk="}},
        CONTEXT_PREFIX + CA_FIELD + "-data cannot be used as a CA: [X509: NO_CERTIFICATE_OR_CRL_FOUND]",
    ),
    "token is a number": (
        {"user": {"token": 12345}},
        CONTEXT_PREFIX + "user.token: expected text, found a number",
    ),
    "auth-provider": (
        {"user": {"auth-provider": {"name": "oidc", "config": {"client-secret": "hidden"}}}},
        CONTEXT_PREFIX + "user.auth-provider: not supported; use exec, tokenFile or a client certificate",
    ),
    "plugin argument is a number": (
        {"user": {"exec": {"apiVersion": PLUGIN_VERSION, "command": "true", "args": ["--hidden", 5]}}},
        CONTEXT_PREFIX + "user.exec.args[1]: expected text, found a number",
    ),
    "plugin environment value is a number": (
        {"user": {"exec": {"apiVersion": PLUGIN_VERSION, "command": "true", "env": [{"name": "A", "value": 5}]}}},
        CONTEXT_PREFIX + "user.exec.env[0]: expected a name and a value, both text",
    ),
    "plugin environment is text": (
        {"user": {"exec": {"apiVersion": PLUGIN_VERSION, "command": "true", "env": "HIDDEN=1"}}},
        CONTEXT_PREFIX + "user.exec.env: expected a list, found text",
    ),
    "plugin needs a terminal": (
        {"user": {"exec": {"apiVersion": PLUGIN_VERSION, "command": "true", "interactiveMode": "Always"}}},
        CONTEXT_PREFIX + "user.exec.interactiveMode: 'Always' needs a terminal, and knft runs plugins without one",
    ),
    "plugin fails": (
        {"user": {"exec": {"apiVersion": "client.authentication.k8s.io/v1", "command": "false"}}},
        CONTEXT_PREFIX + "user.exec: 'false' gives no credentials: exit status 1",
    ),
}


@pytest.mark.parametrize("name", INVALID)
def test_invalid_kubeconfig_is_one_line(name: str, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    fields, expected = INVALID[name]
    (tmp_path / "empty").touch()
    path = write_kubeconfig(tmp_path, **fields)
    with pytest.raises(UsageError) as raised:
        ApiClient(ClientSettings(kubeconfig=str(path)))
    assert str(raised.value).partition(" no certificate or crl found")[0] == expected.format(path=path, folder=tmp_path)
    assert "\n" not in str(raised.value)
    assert "hidden" not in caplog.text.lower() + "".join(traceback.format_exception(raised.value))


@pytest.mark.parametrize("master", ["ftp://x", "https://[::1", "https://", "a:99999", "http://a:1?x=1"])
def test_invalid_master(master: str) -> None:
    with pytest.raises(UsageError) as raised:
        ApiClient(ClientSettings(server=master))
    assert str(raised.value) == f"--master: {master!r} is not a URL such as https://192.0.2.1:6443"


def test_invalid_in_cluster_server(tmp_path: Path, authority: CertificateAuthority) -> None:
    with FakeApiServer(one_service_cluster()) as server:
        in_cluster = write_in_cluster_files(tmp_path, server, authority, "token")
    in_cluster = in_cluster._replace(environment={**in_cluster.environment, "KUBERNETES_SERVICE_PORT": "none"})
    with pytest.raises(UsageError, match=r"ServiceAccount of this pod.*: 'https://127.0.0.1:none' is not a URL"):
        ApiClient(ClientSettings(), in_cluster=in_cluster)


def test_plugin_output_is_not_in_the_error(tmp_path: Path) -> None:
    for printed in (
        "hidden",
        '{"apiVersion": "hidden"',
        '{"apiVersion": "v1", "kind": "hidden", "status": {"token": 5}}',
    ):
        plugin = {"apiVersion": PLUGIN_VERSION, "command": "echo", "args": [printed]}
        path = write_kubeconfig(tmp_path, user={"exec": plugin})
        with pytest.raises(UsageError, match=r"user\.exec: 'echo' gives no credentials: ") as raised:
            ApiClient(ClientSettings(kubeconfig=str(path)))
        assert "hidden" not in "".join(traceback.format_exception(raised.value))


def test_invalid_proxy_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTPS_PROXY", "ftp://me:hidden@b:1")
    monkeypatch.delenv("no_proxy", raising=False)
    monkeypatch.delenv("NO_PROXY", raising=False)
    with pytest.raises(UsageError, match=r"--master: cannot connect through the proxy 'ftp://b:1'"):
        ApiClient(ClientSettings(server="https://192.0.2.1:1"))


def test_password_of_a_url_is_not_shown() -> None:
    with unused_address() as url:
        client = ApiClient(ClientSettings(server=url.replace("//", "//me:hidden@")))
        with pytest.raises(ApiServerError) as raised:
            client.request("GET", "/api/v1/services")
    assert str(raised.value) == f"{url}: connection refused"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", "the file is empty"),
        ("# nothing\n", "the file is empty"),
        ("- a\n", "expected a mapping of kind Config, found a list"),
        ("a: [b\n", "not YAML: line 2, column 1: did not find expected ',' or ']'"),
        ("a: \x07\n", "not YAML: byte 4: control characters are not allowed"),
    ],
)
def test_file_that_is_not_a_kubeconfig(text: str, expected: str, tmp_path: Path) -> None:
    path = tmp_path / "kubeconfig"
    path.write_text(text)
    with pytest.raises(UsageError) as raised:
        ApiClient(ClientSettings(kubeconfig=str(path)))
    assert str(raised.value).startswith(f"kubeconfig {path}: {expected}")
    assert "\n" not in str(raised.value)


def test_unreadable_kubeconfig(tmp_path: Path) -> None:
    missing, folder = tmp_path / "none", tmp_path
    with pytest.raises(UsageError, match="none: No such file or directory; give --kubeconfig a readable file"):
        ApiClient(ClientSettings(kubeconfig=str(missing)))
    with pytest.raises(UsageError, match="it is a directory, not a regular file"):
        ApiClient(ClientSettings(kubeconfig=str(folder)))


def test_invalid_certificates(tmp_path: Path, authority: CertificateAuthority) -> None:
    (tmp_path / "ca.crt").write_text("hello\n")
    path = write_kubeconfig(tmp_path, cluster={"server": "https://a:1", "certificate-authority": "ca.crt"})
    with pytest.raises(UsageError, match=f"context 'here': {tmp_path}/ca.crt cannot be used as a CA"):
        ApiClient(ClientSettings(kubeconfig=str(path)))
    mine, other = authority.sign("me"), authority.sign("somebody")
    user = {"client-certificate": str(mine.certificate), "client-key": str(other.key)}
    path = write_kubeconfig(tmp_path, user=user)
    with pytest.raises(UsageError, match="cannot be used as a client certificate with its key"):
        ApiClient(ClientSettings(kubeconfig=str(path)))


def test_neither_kubeconfig_nor_pod() -> None:
    with pytest.raises(UsageError, match=r"no API server configured: .* this is not a pod; give --kubeconfig FILE"):
        ApiClient(ClientSettings(), in_cluster=PodEnvironment(environment={}))


def test_pod_without_token(tmp_path: Path) -> None:
    environment = {"KUBERNETES_SERVICE_HOST": "127.0.0.1", "KUBERNETES_SERVICE_PORT": "443"}
    in_cluster = PodEnvironment(str(tmp_path / "token"), str(tmp_path / "ca.crt"), environment)
    with pytest.raises(UsageError, match=r"ServiceAccount of this pod .* mount its token, or give --kubeconfig"):
        ApiClient(ClientSettings(), in_cluster=in_cluster)


def test_master_overrides_the_kubeconfig(tmp_path: Path) -> None:
    path = write_kubeconfig(tmp_path)
    master = "http://127.0.0.1:1/"
    assert ApiClient(insecure_settings(path, server=master)).server == "http://127.0.0.1:1"
    assert ApiClient(ClientSettings(kubeconfig=str(path))).server == "https://127.0.0.1:6443"
    assert ApiClient(ClientSettings(server="127.0.0.1:8080")).server == "http://127.0.0.1:8080"


def test_unknown_home_directory_is_an_error() -> None:
    with pytest.raises(UsageError, match="kubeconfig ~nobody-of-this-name/x: cannot expand ~"):
        ApiClient(ClientSettings(kubeconfig="~nobody-of-this-name/x"))
