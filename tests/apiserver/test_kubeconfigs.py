"""Kubeconfigs, addresses and what a pod is given that cannot be meant: one clear line each, which shows no secret."""

import traceback
from pathlib import Path
from typing import Any

import pytest
from kubernetes.config import ConfigException

from knft.apiserver import access
from knft.apiserver.access import Pod
from knft.apiserver.connection import Connection
from knft.configuration.settings import ClientSettings
from knft.errors import ClusterError, UsageError
from tests.apiserver.answers import nobody_there
from tests.apiserver.certificates import Authority
from tests.apiserver.kubeconfigs import PLUGIN_VERSION, in_pod, kubeconfig, one
from tests.apiserver.server import ApiServer

pytestmark = pytest.mark.usefixtures("info")
HERE = "kubeconfig {path}, context 'here': "
OF_FILE = "kubeconfig {path}: "
AUTHORITY = "cluster.certificate-authority"
WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "kind": ({"kind": "Pod"}, OF_FILE + "it holds kind 'Pod' of apiVersion 'v1', not a Config of v1"),
    "no current context": ({"current-context": ...}, OF_FILE + "current-context: it is missing; set it to 'here'"),
    "no contexts either": (
        {"current-context": "", "contexts": []},
        OF_FILE + "current-context: it is missing; and there are no contexts either",
    ),
    "a number": (
        {"current-context": 5},
        OF_FILE + "current-context: it is a number, and text has to stand here",
    ),
    "no such context": (
        {"current-context": "there"},
        OF_FILE + "current-context: there is no 'there' in contexts; there is 'here'",
    ),
    "contexts": ({"contexts": "here"}, OF_FILE + "contexts: it is text, and a list has to stand here"),
    "a context without a name": (
        {"contexts": [{"context": {}}]},
        OF_FILE + "contexts[0]: a mapping with a name has to stand here",
    ),
    "two of a name": (
        {"contexts": [{"name": "here", "context": {}}] * 2},
        OF_FILE + "contexts: 'here' stands there 2 times; keep one",
    ),
    "an empty context": ({"contexts": [{"name": "here"}]}, OF_FILE + "context of 'here': it is missing"),
    "no cluster": ({"context": {"user": "me"}}, HERE + "context.cluster: it is missing"),
    "no such cluster": (
        {"context": {"cluster": "away"}},
        HERE + "context.cluster: there is no 'away' in clusters; there is 'home'",
    ),
    "no clusters": ({"clusters": ...}, HERE + "context.cluster: there is no 'home' in clusters"),
    "no server": ({"cluster": {}}, HERE + "cluster.server: it is missing"),
    "server": (
        {"cluster": {"server": "6443"}},
        HERE + "cluster.server: '6443' is not an address such as https://192.0.2.1:6443",
    ),
    "no such user": (
        {"context": {"cluster": "home", "user": "you"}},
        HERE + "context.user: there is no 'you' in users; there is 'me'",
    ),
    "a missing CA": (
        {"cluster": {"server": "https://a:1", "certificate-authority": "ca.crt"}},
        HERE + AUTHORITY + ": {folder}/ca.crt: No such file or directory",
    ),
    "an empty CA": (
        {"cluster": {"server": "https://a:1", "certificate-authority": "empty"}},
        HERE + AUTHORITY + ": {folder}/empty: it is empty",
    ),
    "CA data": (
        {"cluster": {"server": "https://a:1", "certificate-authority-data": "###"}},
        HERE + AUTHORITY + "-data: it is not base64",
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
        HERE + "user.exec.command: it is missing",
    ),
    "a server without a host": (
        {"cluster": {"server": "https://:6443"}},
        HERE + "cluster.server: 'https://:6443' is not an address such as https://192.0.2.1:6443",
    ),
    "a server at no port": (
        {"cluster": {"server": "https://me:hidden@a:99999"}},
        HERE + "cluster.server: 'https://a:99999' is not an address such as https://192.0.2.1:6443",
    ),
    "a proxy": (
        {"cluster": {"server": "https://a:1", "proxy-url": "socks5://me:hidden@b:1"}},
        HERE + "cluster.proxy-url: 'socks5://b:1' is not an address such as http://192.0.2.1:3128",
    ),
    "a proxy that is a number": (
        {"cluster": {"server": "https://a:1", "proxy-url": 3128}},
        HERE + "cluster.proxy-url: it is a number, and text has to stand here",
    ),
    # Text is as good as true to Python: nobody's certificate would be looked at.
    "trust as text": (
        {"cluster": {"server": "https://a:1", "insecure-skip-tls-verify": "false"}},
        HERE + "cluster.insecure-skip-tls-verify: it is text, and true or false has to stand here",
    ),
    "trust in everybody and in a CA": (
        {"cluster": {"server": "https://a:1", "insecure-skip-tls-verify": True, "certificate-authority-data": "aGk="}},
        HERE + "cluster.insecure-skip-tls-verify: a CA beside it would be of no use; keep one of them",
    ),
    "CA data that is no CA": (
        {"cluster": {"server": "https://a:1", "certificate-authority-data": "aGk="}},
        HERE + "certificate-authority-data cannot be used as a CA: [X509: NO_CERTIFICATE_OR_CRL_FOUND]",
    ),
    "a token that is a number": (
        {"user": {"token": 12345}},
        HERE + "user.token: it is a number, and text has to stand here",
    ),
    "a provider": (
        {"user": {"auth-provider": {"name": "oidc", "config": {"client-secret": "hidden"}}}},
        HERE + "user.auth-provider: knft has none, as kube-proxy has none; use exec, tokenFile or a certificate",
    ),
    "arguments of a plugin": (
        {"user": {"exec": {"apiVersion": PLUGIN_VERSION, "command": "true", "args": ["--hidden", 5]}}},
        HERE + "user.exec.args[1]: it is a number, and text has to stand here",
    ),
    "environment of a plugin": (
        {"user": {"exec": {"apiVersion": PLUGIN_VERSION, "command": "true", "env": [{"name": "A", "value": 5}]}}},
        HERE + "user.exec.env[0]: a name and a value, both text, have to stand here",
    ),
    "an environment of a plugin that is none": (
        {"user": {"exec": {"apiVersion": PLUGIN_VERSION, "command": "true", "env": "HIDDEN=1"}}},
        HERE + "user.exec.env: it is text, and a list has to stand here",
    ),
    "a plugin that fails": (
        {"user": {"exec": {"apiVersion": "client.authentication.k8s.io/v1", "command": "false"}}},
        HERE + "user.exec: 'false' gives no credentials (the log has its reason)",
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_kubeconfig_that_is_wrong_is_one_clear_line(
    name: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    fields, said = WRONG[name]
    (tmp_path / "empty").touch()
    path = kubeconfig(tmp_path, **fields)
    with pytest.raises(UsageError) as raised:
        Connection(ClientSettings(kubeconfig=str(path)))
    assert str(raised.value).partition(" no certificate or crl found")[0] == said.format(path=path, folder=tmp_path)
    assert "\n" not in str(raised.value)
    assert "hidden" not in caplog.text.lower() + "".join(traceback.format_exception(raised.value))


@pytest.mark.parametrize("master", ["ftp://x", "https://[::1", "https://", "a:99999", "http://a:1?x=1"])
def test_a_master_that_is_no_address(master: str) -> None:
    with pytest.raises(UsageError) as raised:
        Connection(ClientSettings(server=master))
    assert str(raised.value) == f"--master: {master!r} is not an address such as https://192.0.2.1:6443"


def test_a_pod_whose_server_is_no_address(tmp_path: Path, authority: Authority) -> None:
    with ApiServer(one()) as server:
        pod = in_pod(tmp_path, server, authority, "token")
    pod = pod._replace(environment={**pod.environment, "KUBERNETES_SERVICE_PORT": "none"})
    with pytest.raises(UsageError, match=r"ServiceAccount of this pod.*: 'https://127.0.0.1:none' is not an address"):
        Connection(ClientSettings(), pod=pod)


def test_what_the_package_says_of_a_user_is_not_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(**_: object) -> None:
        raise ConfigException("Expected key x in kubeconfig/{'name': 'me', 'user': {'token': 'hidden'}}/user")  # noqa: EM101, TRY003

    monkeypatch.setattr(access, "load_kube_config", fails)
    path = kubeconfig(tmp_path)
    with pytest.raises(UsageError) as raised:
        Connection(ClientSettings(kubeconfig=str(path)))
    assert str(raised.value) == f"kubeconfig {path}, context 'here': Expected key x in kubeconfig/"
    assert "hidden" not in "".join(traceback.format_exception(raised.value))


def test_a_proxy_of_the_environment_that_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTPS_PROXY", "ftp://me:hidden@b:1")
    monkeypatch.delenv("no_proxy", raising=False)
    monkeypatch.delenv("NO_PROXY", raising=False)
    with pytest.raises(UsageError, match=r"--master: no connections can be made by the proxy 'ftp://b:1'"):
        Connection(ClientSettings(server="https://192.0.2.1:1"))


def test_a_password_in_an_address_is_not_shown() -> None:
    with nobody_there() as url:
        connection = Connection(ClientSettings(server=url.replace("//", "//me:hidden@")))
        with pytest.raises(ClusterError) as raised:
            connection.request("GET", "/api/v1/services")
    assert str(raised.value) == f"{url}: connection refused"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "it is empty"),
        ("# nothing\n", "it is empty"),
        ("- a\n", "it is a list, and a mapping of kind Config has to stand here"),
        ("a: [b\n", "not YAML: line 2, column 1: expected ',' or ']', but got '<stream end>'"),
        ("a: \x07\n", "not YAML: unacceptable character"),
    ],
)
def test_a_kubeconfig_that_is_none(text: str, said: str, tmp_path: Path) -> None:
    path = tmp_path / "kubeconfig"
    path.write_text(text)
    with pytest.raises(UsageError) as raised:
        Connection(ClientSettings(kubeconfig=str(path)))
    assert str(raised.value).startswith(f"kubeconfig {path}: {said}")
    assert "\n" not in str(raised.value)


def test_a_kubeconfig_that_is_not_there(tmp_path: Path) -> None:
    missing, folder = tmp_path / "none", tmp_path
    with pytest.raises(UsageError, match="none: No such file or directory; give --kubeconfig a file that can be read"):
        Connection(ClientSettings(kubeconfig=str(missing)))
    with pytest.raises(UsageError, match="it is a directory, not a file"):
        Connection(ClientSettings(kubeconfig=str(folder)))


def test_a_file_that_is_no_certificate(tmp_path: Path, authority: Authority) -> None:
    (tmp_path / "ca.crt").write_text("hello\n")
    path = kubeconfig(tmp_path, cluster={"server": "https://a:1", "certificate-authority": "ca.crt"})
    with pytest.raises(UsageError, match=f"context 'here': {tmp_path}/ca.crt cannot be used as a CA"):
        Connection(ClientSettings(kubeconfig=str(path)))
    mine, other = authority.sign("me"), authority.sign("somebody")
    user = {"client-certificate": str(mine.certificate), "client-key": str(other.key)}
    path = kubeconfig(tmp_path, user=user)
    with pytest.raises(UsageError, match="cannot be used as a client certificate with its key"):
        Connection(ClientSettings(kubeconfig=str(path)))


def test_neither_a_kubeconfig_nor_a_pod() -> None:
    with pytest.raises(UsageError, match=r"no way to an API server: this is no pod .* give --kubeconfig FILE"):
        Connection(ClientSettings(), pod=Pod(environment={}))


def test_a_pod_without_its_token(tmp_path: Path) -> None:
    environment = {"KUBERNETES_SERVICE_HOST": "127.0.0.1", "KUBERNETES_SERVICE_PORT": "443"}
    pod = Pod(str(tmp_path / "token"), str(tmp_path / "ca.crt"), environment)
    with pytest.raises(UsageError, match=r"ServiceAccount of this pod .* mount its token, or give --kubeconfig"):
        Connection(ClientSettings(), pod=pod)


def test_master_wins_over_the_kubeconfig_and_stands_alone(tmp_path: Path) -> None:
    path = kubeconfig(tmp_path)
    master = "http://127.0.0.1:1/"
    assert Connection(ClientSettings(kubeconfig=str(path), server=master)).server == "http://127.0.0.1:1"
    assert Connection(ClientSettings(kubeconfig=str(path))).server == "https://127.0.0.1:6443"
    assert Connection(ClientSettings(server="127.0.0.1:8080")).server == "http://127.0.0.1:8080"


def test_a_home_directory_of_nobody() -> None:
    with pytest.raises(UsageError, match="kubeconfig ~nobody-of-this-name/x: nobody knows the home directory"):
        Connection(ClientSettings(kubeconfig="~nobody-of-this-name/x"))
