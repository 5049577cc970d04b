"""Kubeconfigs, what a pod is given, certificates and tokens: by real files and real TLS."""

import base64
import json
import logging
import os
import signal
import stat
import tempfile
import threading
import traceback
from pathlib import Path
from typing import Any

import pytest
import yaml
from kubernetes.config import ConfigException

from knft.cluster import access
from knft.cluster.access import Pod
from knft.cluster.connection import Connection
from knft.cluster.wire import Timing
from knft.configuration.settings import ClientSettings
from knft.errors import ClusterError, UsageError
from tests.cluster_client.certificates import Authority
from tests.cluster_client.cluster import Cluster, service
from tests.cluster_client.following import following, until
from tests.cluster_client.server import ApiServer, Handler, nobody_there, refuse


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("ca"), "ca")


@pytest.fixture(scope="module")
def other_authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("other-ca"), "other-ca")


@pytest.fixture(autouse=True)
def _info(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "knft")


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]


def one() -> Cluster:
    cluster = Cluster()
    cluster.put("services", service("web", 1))
    return cluster


def kubeconfig(folder: Path, **fields: Any) -> Path:
    """Write a kubeconfig; ``cluster``, ``user`` and ``context`` replace these, other fields stand beside."""
    cluster = fields.pop("cluster", {"server": "https://127.0.0.1:6443"})
    user = fields.pop("user", {"token": "secret-token"})
    context = fields.pop("context", {"cluster": "home", "user": "me"})
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "here",
        "clusters": [{"name": "home", "cluster": cluster}],
        "users": [{"name": "me", "user": user}],
        "contexts": [{"name": "here", "context": context}],
    } | fields
    path = folder / "kubeconfig"
    path.write_text(yaml.safe_dump({key: value for key, value in document.items() if value is not ...}))
    return path


PLUGIN_VERSION = "client.authentication.k8s.io/v1"
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


SECRET = "first-secret\nsecond-secret"  # noqa: S105 - of a test
NO_LINE = "the token has more than one line"


@pytest.mark.parametrize("how", ["token", "tokenFile", "exec"])
def test_a_token_of_two_lines_is_refused_and_not_shown(how: str, tmp_path: Path) -> None:
    (tmp_path / "token").write_text(SECRET)
    credential = {"apiVersion": PLUGIN_VERSION, "kind": "ExecCredential", "status": {"token": SECRET}}
    plugin = {"apiVersion": PLUGIN_VERSION, "command": "printf", "args": ["%s", json.dumps(credential)]}
    user = {"token": SECRET} if how == "token" else {"tokenFile": "token"} if how == "tokenFile" else {"exec": plugin}
    path = kubeconfig(tmp_path, user=user)
    with pytest.raises(UsageError) as raised:
        Connection(ClientSettings(kubeconfig=str(path)))
    place = {"tokenFile": f": {tmp_path}/token", "exec": ": 'printf'"}.get(how, "")
    assert str(raised.value) == f"kubeconfig {path}, context 'here': user.{how}{place}: {NO_LINE}"


def test_a_token_that_gets_a_second_line_is_not_used(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    (tmp_path / "token").write_text("one\n")
    with ApiServer(one()) as server:
        path = kubeconfig(tmp_path, cluster={"server": server.url}, user={"tokenFile": "token"})
        connection = Connection(ClientSettings(kubeconfig=str(path)))
        for text in (SECRET, "gar\u0142-secret"):
            (tmp_path / "token").write_text(text)
            connection.request("GET", "/api/v1/services")
        assert {asked.headers["Authorization"] for asked in server.asked} == {"Bearer one"}
        connection.close()
    first, second = warnings(caplog)
    assert NO_LINE in first
    assert "characters that no token has" in second
    assert "secret" not in caplog.text


def test_what_cannot_be_sent_is_not_shown() -> None:
    """Whatever a header is refused for by those who send it, their words are not ours."""
    with ApiServer(one()) as server:
        connection = Connection(ClientSettings(server=server.url))
        way = connection._access.way()
        headers = {"Authorization": f"Bearer {SECRET}"}
        connection._access.way = lambda: way._replace(headers=headers)  # type: ignore[method-assign]
        with pytest.raises(ClusterError) as raised:
            connection.request("GET", "/api/v1/services")
        assert "cannot be sent" in str(raised.value)
        assert "-secret" not in "".join(traceback.format_exception(raised.value))
        connection.close()


def test_a_plugin_that_comes_to_give_a_token_of_two_lines(tmp_path: Path) -> None:
    """The package asks it again by itself when credentials end."""
    status = {"token": SECRET, "expirationTimestamp": "2020-01-01T00:00:00Z"}
    (tmp_path / "later").write_text(
        json.dumps({"apiVersion": PLUGIN_VERSION, "kind": "ExecCredential", "status": status})
    )
    status["token"] = "one"  # noqa: S105 - of a test
    (tmp_path / "now").write_text(
        json.dumps({"apiVersion": PLUGIN_VERSION, "kind": "ExecCredential", "status": status})
    )
    with ApiServer(one()) as server:
        user = {"exec": {"apiVersion": PLUGIN_VERSION, "command": "cat", "args": [str(tmp_path / "now")]}}
        path = kubeconfig(tmp_path, cluster={"server": server.url}, user=user)
        connection = Connection(ClientSettings(kubeconfig=str(path)))
        (tmp_path / "later").rename(tmp_path / "now")
        with pytest.raises(ClusterError, match=f"user.exec: 'cat': {NO_LINE}") as raised:
            connection.request("GET", "/api/v1/services")
        assert "-secret" not in str(raised.value)
        connection.close()


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


def in_pod(folder: Path, server: ApiServer, authority: Authority, token: str) -> Pod:
    """Give a pod its token and CA as a projected volume does: behind a link that is exchanged."""
    pod = Pod(
        str(folder / "token"),
        str(folder / "ca.crt"),
        {"KUBERNETES_SERVICE_HOST": "127.0.0.1", "KUBERNETES_SERVICE_PORT": str(server.server_port)},
    )
    rotate(folder, authority, token)
    for name in ("token", "ca.crt"):
        (folder / name).symlink_to(Path("..data", name))
    return pod


def rotate(folder: Path, authority: Authority, token: str) -> None:
    """Exchange what a projected volume shows, at once."""
    version = folder / f"..version-{len(list(folder.iterdir()))}"
    version.mkdir()
    (version / "token").write_text(token)
    (version / "ca.crt").write_bytes(authority.path.read_bytes())
    link = folder / "..next"
    link.symlink_to(version.name)
    link.rename(folder / "..data")


def test_a_token_that_is_rotated_is_on_the_wire(
    tmp_path: Path, authority: Authority, caplog: pytest.LogCaptureFixture
) -> None:
    with ApiServer(one(), tls=authority.server()) as server:
        server.bearer = "first"
        pod = in_pod(tmp_path, server, authority, "first\n")
        with following(server, pod=pod) as it:
            assert it.source.wait_synced(20)
            rotate(tmp_path, authority, "second")
            server.bearer = "second"
            server.cut_streams()
            server.wait_for("watch services")
            server.cluster.put("services", service("later", 2))
            it.mirror.wait_names("web", "later")
            tokens = [asked.headers["Authorization"].lower() for asked in server.of("services")]
            assert (tokens[0], tokens[-1]) == ("bearer first", "bearer second")
    assert not warnings(caplog)
    assert "first" not in caplog.text
    assert "second" not in caplog.text


def test_a_token_that_has_expired_is_waited_for(
    tmp_path: Path, authority: Authority, caplog: pytest.LogCaptureFixture
) -> None:
    with ApiServer(one(), tls=authority.server()) as server:
        server.bearer = "new"
        pod = in_pod(tmp_path, server, authority, "old")
        with following(server, pod=pod) as it:
            it.until(lambda: len(it.stop.of("services")) >= 3, "three pauses")
            assert not it.source.synced
            rotate(tmp_path, authority, "new")
            assert it.source.wait_synced(20)
    assert len(warnings(caplog)) == 1
    assert "it answers 401: Unauthorized; rules stay as they are" in warnings(caplog)[0]


def test_credentials_that_are_refused_are_read_again_at_once(tmp_path: Path) -> None:
    """A plugin gives another token each time it is asked."""
    counter = tmp_path / "counter"
    plugin = tmp_path / "plugin"
    credential = '{"apiVersion":"client.authentication.k8s.io/v1","kind":"ExecCredential","status":{"token":"t%s"}}'
    plugin.write_text(f"#!/bin/sh\necho >> {counter}\nprintf '{credential}' $(wc -l < {counter})\n")
    plugin.chmod(plugin.stat().st_mode | stat.S_IXUSR)
    with ApiServer(one()) as server:
        user = {"exec": {"apiVersion": "client.authentication.k8s.io/v1", "command": str(plugin)}}
        path = kubeconfig(tmp_path, cluster={"server": server.url}, user=user)
        server.bearer = "t2"
        connection = Connection(ClientSettings(kubeconfig=str(path)))
        assert connection.request("GET", "/api/v1/services")
        assert connection.request("GET", "/api/v1/services")
        assert [asked.headers["Authorization"] for asked in server.asked] == ["Bearer t1", "Bearer t2", "Bearer t2"]
        connection.close()


def test_a_plugin_is_asked_once_for_what_several_requests_were_refused(tmp_path: Path) -> None:
    credential = {"apiVersion": PLUGIN_VERSION, "kind": "ExecCredential", "status": {"token": "t%s"}}
    script = f"cd {tmp_path}; echo >> runs; sleep 0.3; printf '{json.dumps(credential)}' $(wc -l < runs)"
    with ApiServer(one()) as server:
        user = {"exec": {"apiVersion": PLUGIN_VERSION, "command": "sh", "args": ["-c", script]}}
        path = kubeconfig(tmp_path, cluster={"server": server.url}, user=user)
        connection = Connection(ClientSettings(kubeconfig=str(path), qps=0))
        server.bearer = "t2"
        all_asked = threading.Barrier(4)

        def refused(handler: Handler, _: object) -> bool:
            all_asked.wait(20)
            handler.send_status(401, "who?", "Unauthorized")
            return True

        server.demand("", refused, times=4)
        threads = [threading.Thread(target=connection.request, args=["GET", "/api/v1/services"]) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(20)
        assert [asked.headers["Authorization"] for asked in server.asked] == ["Bearer t1"] * 4 + ["Bearer t2"] * 4
        connection.close()


def test_a_token_file_of_a_kubeconfig_is_read_again(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("one")
    with ApiServer(one()) as server:
        path = kubeconfig(tmp_path, cluster={"server": server.url}, user={"tokenFile": "token"})
        connection = Connection(ClientSettings(kubeconfig=str(path)))
        connection.request("GET", "/api/v1/services")
        (tmp_path / "token").write_text("another")
        connection.request("GET", "/api/v1/services")
        assert [asked.headers["Authorization"] for asked in server.asked] == ["Bearer one", "Bearer another"]
        connection.close()


BROKEN_LATER: dict[str, dict[str, Any]] = {
    "not YAML": {},
    "a proxy": {"proxy-url": "nonsense"},
    "an address": {"server": "https://[::1"},
    "a CA": {"certificate-authority-data": "aGk="},
}


@pytest.mark.parametrize("how", BROKEN_LATER)
def test_a_kubeconfig_that_is_broken_later_changes_nothing(
    how: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with ApiServer(one()) as server:
        path = kubeconfig(tmp_path, cluster={"server": server.url})
        connection = Connection(ClientSettings(kubeconfig=str(path)))
        if BROKEN_LATER[how]:
            kubeconfig(tmp_path, cluster={"server": "https://a:1", **BROKEN_LATER[how]})
        else:
            path.write_text("broken: [")
        for _ in range(3):
            connection.request("GET", "/api/v1/services")
        connection.close()
    assert len(warnings(caplog)) == 1
    assert "what was read before stays in use" in warnings(caplog)[0]


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


def test_a_home_directory_of_nobody() -> None:
    with pytest.raises(UsageError, match="kubeconfig ~nobody-of-this-name/x: nobody knows the home directory"):
        Connection(ClientSettings(kubeconfig="~nobody-of-this-name/x"))


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


def slow_plugin(folder: Path, url: str) -> Path:
    """Write a kubeconfig with a plugin that notes that it runs, and goes on until ``go`` is there."""
    credential = {"apiVersion": PLUGIN_VERSION, "kind": "ExecCredential", "status": {"token": "t"}}
    script = f"echo >> runs; while [ ! -e go ]; do sleep 0.05; done; printf '%s' '{json.dumps(credential)}'"
    plugin = {"apiVersion": PLUGIN_VERSION, "command": "sh", "args": ["-c", f"cd {folder}; {script}"]}
    return kubeconfig(folder, cluster={"server": url}, user={"exec": plugin})


def hung_plugin(folder: Path, url: str) -> Path:
    """Write a kubeconfig with a plugin that gives a token once, and then waits for a program that never ends."""
    credential = {"apiVersion": PLUGIN_VERSION, "kind": "ExecCredential", "status": {"token": "t"}}
    once = f"[ -e hang ] || {{ printf '%s' '{json.dumps(credential)}'; exit; }}"
    # Both of them ignore what asks them to end.
    hang = "trap '' TERM; sleep 1000 & echo $$ $! >> left; wait"
    plugin = {"apiVersion": PLUGIN_VERSION, "command": "sh", "args": ["-c", f"cd {folder}; {once}; {hang}"]}
    return kubeconfig(folder, cluster={"server": url}, user={"exec": plugin})


def left_of(folder: Path) -> list[int]:
    """Return the processes of hung plugins that are still there."""
    return [int(word) for word in (folder / "left").read_text().split() if runs(int(word))]


def runs(process: int) -> bool:
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def end_what_is_left_of(folder: Path) -> None:
    for process in left_of(folder):
        os.kill(process, signal.SIGKILL)


def test_a_plugin_that_takes_too_long(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """It is ended, and all that it has started; what it gave before is still used, and it is asked again later."""
    with ApiServer(one()) as server:
        path, timing = hung_plugin(tmp_path, server.url), Timing(plugin=0.5)
        try:
            (tmp_path / "hang").touch()
            with pytest.raises(UsageError, match=r"user\.exec: 'sh' has given no answer for 0.5 s"):
                Connection(ClientSettings(kubeconfig=str(path)), timing=timing)
            until(lambda: not left_of(tmp_path), "nothing is left of it")
            (tmp_path / "hang").unlink()
            connection = Connection(ClientSettings(kubeconfig=str(path)), timing=Timing(plugin=20))
            connection._access._patience._seconds = 0.5
            (tmp_path / "hang").touch()
            for _ in range(2):
                server.demand("", refuse(401, "who?"))
                connection.request("GET", "/api/v1/services")
                until(lambda: not left_of(tmp_path), "nothing is left of it")
                until(lambda: not plugins_waited_for(), "nobody waits for it")
            assert len((tmp_path / "left").read_text().splitlines()) == 3
            assert len([line for line in warnings(caplog) if "stays in use" in line]) == 1
            connection.close()
        finally:
            end_what_is_left_of(tmp_path)


def plugins_waited_for() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "plugin"]


def test_a_plugin_that_hangs_does_not_outlive_knft(tmp_path: Path) -> None:
    with ApiServer(one()) as server:
        path = hung_plugin(tmp_path, server.url)
        try:
            connection = Connection(ClientSettings(kubeconfig=str(path)))
            (tmp_path / "hang").touch()
            server.demand("", refuse(401, "who?"))
            threading.Timer(0.5, connection.close).start()
            with pytest.raises(ClusterError, match="knft is ending"):
                connection.request("GET", "/api/v1/services")
            until(lambda: not left_of(tmp_path), "nothing is left of it")
        finally:
            end_what_is_left_of(tmp_path)


def test_a_plugin_does_not_hold_up_the_end(tmp_path: Path) -> None:
    with ApiServer(one()) as server:
        path = slow_plugin(tmp_path, server.url)
        (tmp_path / "go").touch()
        try:
            with following(server, settings=ClientSettings(kubeconfig=str(path), qps=0)) as it:
                assert it.source.wait_synced(20)
                (tmp_path / "go").unlink()
                runs = len((tmp_path / "runs").read_text())
                server.demand("watch", refuse(401, "who?"), times=100)
                server.cut_streams()
                it.until(lambda: len((tmp_path / "runs").read_text()) > runs, "the plugin is asked again")
                it.stop.set()
                # It takes a minute before it counts as hung.
                assert it.source.join(20)
        finally:
            (tmp_path / "go").touch()


def test_what_is_exchanged_while_it_is_read_is_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    load, tokens = access._load_kubeconfig, ["second"]

    def loads(*given: Any) -> Any:
        found = load(*given)
        if tokens:
            (tmp_path / "token").write_text(tokens.pop())
        return found

    monkeypatch.setattr(access, "_load_kubeconfig", loads)
    (tmp_path / "token").write_text("one")
    with ApiServer(one()) as server:
        path = kubeconfig(tmp_path, cluster={"server": server.url}, user={"tokenFile": "token"})
        connection = Connection(ClientSettings(kubeconfig=str(path)))
        connection.request("GET", "/api/v1/services")
        assert server.asked[0].headers["Authorization"] == "Bearer second"
        connection.close()
