"""Tokens, from files that are exchanged while knft runs: read again, and never shown."""

import json
import logging
import stat
import traceback
from pathlib import Path
from typing import Any

import pytest

from knft.apiserver import access
from knft.apiserver.connection import Connection
from knft.configuration.settings import ClientSettings
from knft.errors import ClusterError, UsageError
from tests.apiserver.certificates import Authority
from tests.apiserver.cluster import service
from tests.apiserver.following import following
from tests.apiserver.kubeconfigs import NO_LINE, PLUGIN_VERSION, SECRET, in_pod, kubeconfig, one, rotate
from tests.apiserver.logged import warnings
from tests.apiserver.server import ApiServer

pytestmark = pytest.mark.usefixtures("info")


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
