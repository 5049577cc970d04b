"""Invalid kubeconfigs, URLs and in-cluster files: one line each, without secrets."""

import traceback
from pathlib import Path
from typing import Any

import pytest

from knft.apiserver.connection import Connection
from knft.apiserver.in_cluster import InCluster
from knft.configuration.settings import ClientSettings
from knft.errors import ApiServerError, UsageError
from tests.apiserver.certificates import CertificateAuthority
from tests.apiserver.kubeconfigs import PLUGIN_VERSION, one_service_cluster, write_in_cluster_files, write_kubeconfig
from tests.support.fake_api.responses import unused_address
from tests.support.fake_api.server import FakeApiServer

pytestmark = pytest.mark.usefixtures("info")
HERE = "kubeconfig {path}, context 'here': "
OF_FILE = "kubeconfig {path}: "
AUTHORITY = "cluster.certificate-authority"
WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "kind": ({"kind": "Pod"}, OF_FILE + "expected kind 'Config' of apiVersion 'v1', found kind 'Pod' of 'v1'"),
    "no current context": ({"current-context": ...}, OF_FILE + "current-context: not set; set it to 'here'"),
    "no contexts either": (
        {"current-context": "", "contexts": []},
        OF_FILE + "current-context: not set; the file has no contexts",
    ),
    "a number": (
        {"current-context": 5},
        OF_FILE + "current-context: expected text, found a number",
    ),
    "no such context": (
        {"current-context": "there"},
        OF_FILE + "current-context: 'there' not found in contexts; use 'here'",
    ),
    "contexts": ({"contexts": "here"}, OF_FILE + "contexts: expected a list, found text"),
    "a context without a name": (
        {"contexts": [{"context": {}}]},
        OF_FILE + "contexts[0]: expected a mapping with a name",
    ),
    "two of a name": (
        {"contexts": [{"name": "here", "context": {}}] * 2},
        OF_FILE + "contexts: 'here' appears 2 times; keep one",
    ),
    "an empty context": ({"contexts": [{"name": "here"}]}, OF_FILE + "context of 'here': not set"),
    "no cluster": ({"context": {"user": "me"}}, HERE + "context.cluster: not set"),
    "no such cluster": (
        {"context": {"cluster": "away"}},
        HERE + "context.cluster: 'away' not found in clusters; use 'home'",
    ),
    "no clusters": ({"clusters": ...}, HERE + "context.cluster: 'home' not found in clusters"),
    "no server": ({"cluster": {}}, HERE + "cluster.server: not set"),
    "server": (
        {"cluster": {"server": "6443"}},
        HERE + "cluster.server: '6443' is not a URL such as https://192.0.2.1:6443",
    ),
    "no such user": (
        {"context": {"cluster": "home", "user": "you"}},
        HERE + "context.user: 'you' not found in users; use 'me'",
    ),
    "a missing CA": (
        {"cluster": {"server": "https://a:1", "certificate-authority": "ca.crt"}},
        HERE + AUTHORITY + ": {folder}/ca.crt: No such file or directory",
    ),
    "an empty CA": (
        {"cluster": {"server": "https://a:1", "certificate-authority": "empty"}},
        HERE + AUTHORITY + ": {folder}/empty: the file is empty",
    ),
    "CA data": (
        {"cluster": {"server": "https://a:1", "certificate-authority-data": "###"}},
        HERE + AUTHORITY + "-data: not valid base64",
    ),
    "a missing token file": (
        {"user": {"tokenFile": "token"}},
        HERE + "user.tokenFile: {folder}/token: No such file or directory",
    ),
    "a missing client certificate": (
        {"user": {"client-certificate": "me.crt", "client-key": "me.key"}},
        HERE + "user.client-certificate: {folder}/me.crt: No such file or directory",
    ),
    "a plugin without a command": (
        {"user": {"exec": {"apiVersion": "client.authentication.k8s.io/v1"}}},
        HERE + "user.exec.command: not set",
    ),
    "a server without a host": (
        {"cluster": {"server": "https://:6443"}},
        HERE + "cluster.server: 'https://:6443' is not a URL such as https://192.0.2.1:6443",
    ),
    "a server at no port": (
        {"cluster": {"server": "https://me:hidden@a:99999"}},
        HERE + "cluster.server: 'https://a:99999' is not a URL such as https://192.0.2.1:6443",
    ),
    "a proxy": (
        {"cluster": {"server": "https://a:1", "proxy-url": "socks5://me:hidden@b:1"}},
        HERE + "cluster.proxy-url: 'socks5://b:1' is not a URL such as http://192.0.2.1:3128",
    ),
    "a proxy that is a number": (
        {"cluster": {"server": "https://a:1", "proxy-url": 3128}},
        HERE + "cluster.proxy-url: expected text, found a number",
    ),
    # A text is true in Python: the server's certificate would not be verified.
    "trust as text": (
        {"cluster": {"server": "https://a:1", "insecure-skip-tls-verify": "false"}},
        HERE + "cluster.insecure-skip-tls-verify: expected true or false, found text",
    ),
    "trust in everybody and in a CA": (
        {"cluster": {"server": "https://a:1", "insecure-skip-tls-verify": True, "certificate-authority-data": "aGk="}},
        HERE + "cluster.insecure-skip-tls-verify: cannot be combined with a certificate authority; remove one",
    ),
    "CA data that is no CA": (
        {"cluster": {"server": "https://a:1", "certificate-authority-data": "aGk="}},
        HERE + AUTHORITY + "-data cannot be used as a CA: [X509: NO_CERTIFICATE_OR_CRL_FOUND]",
    ),
    "a token that is a number": (
        {"user": {"token": 12345}},
        HERE + "user.token: expected text, found a number",
    ),
    "a provider": (
        {"user": {"auth-provider": {"name": "oidc", "config": {"client-secret": "hidden"}}}},
        HERE + "user.auth-provider: not supported; use exec, tokenFile or a client certificate",
    ),
    "arguments of a plugin": (
        {"user": {"exec": {"apiVersion": PLUGIN_VERSION, "command": "true", "args": ["--hidden", 5]}}},
        HERE + "user.exec.args[1]: expected text, found a number",
    ),
    "environment of a plugin": (
        {"user": {"exec": {"apiVersion": PLUGIN_VERSION, "command": "true", "env": [{"name": "A", "value": 5}]}}},
        HERE + "user.exec.env[0]: expected a name and a value, both text",
    ),
    "an environment of a plugin that is none": (
        {"user": {"exec": {"apiVersion": PLUGIN_VERSION, "command": "true", "env": "HIDDEN=1"}}},
        HERE + "user.exec.env: expected a list, found text",
    ),
    "a plugin that fails": (
        {"user": {"exec": {"apiVersion": "client.authentication.k8s.io/v1", "command": "false"}}},
        HERE + "user.exec: 'false' gives no credentials: exit status 1",
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_invalid_kubeconfig_is_one_line(name: str, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    fields, expected = WRONG[name]
    (tmp_path / "empty").touch()
    path = write_kubeconfig(tmp_path, **fields)
    with pytest.raises(UsageError) as raised:
        Connection(ClientSettings(kubeconfig=str(path)))
    assert str(raised.value).partition(" no certificate or crl found")[0] == expected.format(path=path, folder=tmp_path)
    assert "\n" not in str(raised.value)
    assert "hidden" not in caplog.text.lower() + "".join(traceback.format_exception(raised.value))


@pytest.mark.parametrize("master", ["ftp://x", "https://[::1", "https://", "a:99999", "http://a:1?x=1"])
def test_invalid_master(master: str) -> None:
    with pytest.raises(UsageError) as raised:
        Connection(ClientSettings(server=master))
    assert str(raised.value) == f"--master: {master!r} is not a URL such as https://192.0.2.1:6443"


def test_invalid_in_cluster_server(tmp_path: Path, authority: CertificateAuthority) -> None:
    with FakeApiServer(one_service_cluster()) as server:
        in_cluster = write_in_cluster_files(tmp_path, server, authority, "token")
    in_cluster = in_cluster._replace(environment={**in_cluster.environment, "KUBERNETES_SERVICE_PORT": "none"})
    with pytest.raises(UsageError, match=r"ServiceAccount of this pod.*: 'https://127.0.0.1:none' is not a URL"):
        Connection(ClientSettings(), in_cluster=in_cluster)


def test_plugin_output_is_not_in_the_error(tmp_path: Path) -> None:
    for printed in (
        "hidden",
        '{"apiVersion": "hidden"',
        '{"apiVersion": "v1", "kind": "hidden", "status": {"token": 5}}',
    ):
        plugin = {"apiVersion": PLUGIN_VERSION, "command": "echo", "args": [printed]}
        path = write_kubeconfig(tmp_path, user={"exec": plugin})
        with pytest.raises(UsageError, match=r"user\.exec: 'echo' gives no credentials: ") as raised:
            Connection(ClientSettings(kubeconfig=str(path)))
        assert "hidden" not in "".join(traceback.format_exception(raised.value))


def test_invalid_proxy_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTPS_PROXY", "ftp://me:hidden@b:1")
    monkeypatch.delenv("no_proxy", raising=False)
    monkeypatch.delenv("NO_PROXY", raising=False)
    with pytest.raises(UsageError, match=r"--master: cannot connect through the proxy 'ftp://b:1'"):
        Connection(ClientSettings(server="https://192.0.2.1:1"))


def test_password_of_a_url_is_not_shown() -> None:
    with unused_address() as url:
        connection = Connection(ClientSettings(server=url.replace("//", "//me:hidden@")))
        with pytest.raises(ApiServerError) as raised:
            connection.request("GET", "/api/v1/services")
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
        Connection(ClientSettings(kubeconfig=str(path)))
    assert str(raised.value).startswith(f"kubeconfig {path}: {expected}")
    assert "\n" not in str(raised.value)


def test_unreadable_kubeconfig(tmp_path: Path) -> None:
    missing, folder = tmp_path / "none", tmp_path
    with pytest.raises(UsageError, match="none: No such file or directory; give --kubeconfig a readable file"):
        Connection(ClientSettings(kubeconfig=str(missing)))
    with pytest.raises(UsageError, match="it is a directory, not a regular file"):
        Connection(ClientSettings(kubeconfig=str(folder)))


def test_invalid_certificates(tmp_path: Path, authority: CertificateAuthority) -> None:
    (tmp_path / "ca.crt").write_text("hello\n")
    path = write_kubeconfig(tmp_path, cluster={"server": "https://a:1", "certificate-authority": "ca.crt"})
    with pytest.raises(UsageError, match=f"context 'here': {tmp_path}/ca.crt cannot be used as a CA"):
        Connection(ClientSettings(kubeconfig=str(path)))
    mine, other = authority.sign("me"), authority.sign("somebody")
    user = {"client-certificate": str(mine.certificate), "client-key": str(other.key)}
    path = write_kubeconfig(tmp_path, user=user)
    with pytest.raises(UsageError, match="cannot be used as a client certificate with its key"):
        Connection(ClientSettings(kubeconfig=str(path)))


def test_neither_kubeconfig_nor_pod() -> None:
    with pytest.raises(UsageError, match=r"no API server configured: .* this is not a pod; give --kubeconfig FILE"):
        Connection(ClientSettings(), in_cluster=InCluster(environment={}))


def test_pod_without_token(tmp_path: Path) -> None:
    environment = {"KUBERNETES_SERVICE_HOST": "127.0.0.1", "KUBERNETES_SERVICE_PORT": "443"}
    in_cluster = InCluster(str(tmp_path / "token"), str(tmp_path / "ca.crt"), environment)
    with pytest.raises(UsageError, match=r"ServiceAccount of this pod .* mount its token, or give --kubeconfig"):
        Connection(ClientSettings(), in_cluster=in_cluster)


def test_master_overrides_the_kubeconfig(tmp_path: Path) -> None:
    path = write_kubeconfig(tmp_path)
    master = "http://127.0.0.1:1/"
    assert Connection(ClientSettings(kubeconfig=str(path), server=master)).server == "http://127.0.0.1:1"
    assert Connection(ClientSettings(kubeconfig=str(path))).server == "https://127.0.0.1:6443"
    assert Connection(ClientSettings(server="127.0.0.1:8080")).server == "http://127.0.0.1:8080"


def test_unknown_home_directory() -> None:
    with pytest.raises(UsageError, match="kubeconfig ~nobody-of-this-name/x: cannot expand ~"):
        Connection(ClientSettings(kubeconfig="~nobody-of-this-name/x"))
