"""Tokens: files that are replaced while knft runs are read again, and no token is shown."""

import json
import logging
import stat
import traceback
from pathlib import Path
from typing import Any

import pytest

from knft.apiserver import transport
from knft.apiserver.api_client import ApiClient
from knft.apiserver.kubeconfig import read_kubeconfig
from knft.configuration.settings import ClientSettings
from knft.errors import ApiServerError, UsageError
from tests.apiserver.kubeconfigs import (
    MULTI_LINE_ERROR,
    PLUGIN_VERSION,
    TWO_LINE_TOKEN,
    insecure_settings,
    one_service_cluster,
    replace_in_cluster_files,
    write_in_cluster_files,
    write_kubeconfig,
)
from tests.apiserver.log_records import warnings
from tests.apiserver.running_source import running_source
from tests.support.certificates import CertificateAuthority
from tests.support.fake_api.cluster import service
from tests.support.fake_api.server import FakeApiServer

pytestmark = pytest.mark.usefixtures("capture_info_log")


@pytest.mark.parametrize("how", ["token", "tokenFile", "exec"])
def test_token_with_two_lines_is_refused_and_not_shown(how: str, tmp_path: Path) -> None:
    (tmp_path / "token").write_text(TWO_LINE_TOKEN)
    credential = {"apiVersion": PLUGIN_VERSION, "kind": "ExecCredential", "status": {"token": TWO_LINE_TOKEN}}
    plugin = {"apiVersion": PLUGIN_VERSION, "command": "printf", "args": ["%s", json.dumps(credential)]}
    user = (
        {"token": TWO_LINE_TOKEN}
        if how == "token"
        else {"tokenFile": "token"}
        if how == "tokenFile"
        else {"exec": plugin}
    )
    path = write_kubeconfig(tmp_path, user=user)
    with pytest.raises(UsageError) as raised:
        ApiClient(insecure_settings(path))
    place = {"tokenFile": f": {tmp_path}/token", "exec": ": 'printf'"}.get(how, "")
    assert str(raised.value) == f"kubeconfig {path}, context 'here': user.{how}{place}: {MULTI_LINE_ERROR}"


def test_replaced_invalid_token_is_not_used(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    (tmp_path / "token").write_text("one\n")
    with FakeApiServer(one_service_cluster()) as server:
        path = write_kubeconfig(tmp_path, cluster={"server": server.url}, user={"tokenFile": "token"})
        client = ApiClient(insecure_settings(path))
        for text in (TWO_LINE_TOKEN, "gar\u0142-secret"):
            (tmp_path / "token").write_text(text)
            client.request("GET", "/api/v1/services")
        assert {request.headers["Authorization"] for request in server.requests} == {"Bearer one"}
        client.close()
    first, second = warnings(caplog)
    assert MULTI_LINE_ERROR in first
    assert "characters that are not printable ASCII" in second
    assert "secret" not in caplog.text


def test_header_that_cannot_be_sent_is_not_shown() -> None:
    """The error of http.client for an invalid header quotes the header, and must not be used."""
    with FakeApiServer(one_service_cluster()) as server:
        client = ApiClient(ClientSettings(server=server.url))
        target = client._transport.request_target()
        headers = {"Authorization": f"Bearer {TWO_LINE_TOKEN}"}
        client._transport.request_target = lambda: target._replace(headers=headers)  # type: ignore[method-assign]
        with pytest.raises(ApiServerError) as raised:
            client.request("GET", "/api/v1/services")
        assert "cannot send the request" in str(raised.value)
        assert "-secret" not in "".join(traceback.format_exception(raised.value))
        client.close()


def test_rotated_token_is_sent(
    tmp_path: Path, authority: CertificateAuthority, caplog: pytest.LogCaptureFixture
) -> None:
    with FakeApiServer(one_service_cluster(), tls=authority.server()) as server:
        server.required_bearer = "first"
        in_cluster = write_in_cluster_files(tmp_path, server, authority, "first\n")
        with running_source(server, in_cluster=in_cluster) as run:
            assert run.source.wait_all_listed(20)
            replace_in_cluster_files(tmp_path, authority, "second")
            server.required_bearer = "second"
            server.end_streams()
            server.wait_for_request("watch services")
            server.cluster.put("services", service("later", 2))
            run.changes.wait_names("web", "later")
            tokens = [request.headers["Authorization"].lower() for request in server.requests_for("services")]
            assert (tokens[0], tokens[-1]) == ("bearer first", "bearer second")
    assert not warnings(caplog)
    assert "first" not in caplog.text
    assert "second" not in caplog.text


def test_expired_token_is_retried_until_replaced(
    tmp_path: Path, authority: CertificateAuthority, caplog: pytest.LogCaptureFixture
) -> None:
    with FakeApiServer(one_service_cluster(), tls=authority.server()) as server:
        server.required_bearer = "new"
        in_cluster = write_in_cluster_files(tmp_path, server, authority, "old")
        with running_source(server, in_cluster=in_cluster) as run:
            run.wait_until(lambda: len(run.stop.pauses_of("services")) >= 3, "three pauses")
            assert not run.source.all_listed
            replace_in_cluster_files(tmp_path, authority, "new")
            assert run.source.wait_all_listed(20)
    assert len(warnings(caplog)) == 1
    assert "the server answered 401: Unauthorized; rules stay as they are" in warnings(caplog)[0]


def test_refused_credentials_are_renewed_at_once(tmp_path: Path) -> None:
    """The plugin gives another token in each run."""
    counter = tmp_path / "counter"
    plugin = tmp_path / "plugin"
    credential = '{"apiVersion":"client.authentication.k8s.io/v1","kind":"ExecCredential","status":{"token":"t%s"}}'
    plugin.write_text(f"#!/bin/sh\necho >> {counter}\nprintf '{credential}' $(wc -l < {counter})\n")
    plugin.chmod(plugin.stat().st_mode | stat.S_IXUSR)
    with FakeApiServer(one_service_cluster()) as server:
        user = {"exec": {"apiVersion": "client.authentication.k8s.io/v1", "command": str(plugin)}}
        path = write_kubeconfig(tmp_path, cluster={"server": server.url}, user=user)
        server.required_bearer = "t2"
        client = ApiClient(insecure_settings(path))
        assert client.request("GET", "/api/v1/services")
        assert client.request("GET", "/api/v1/services")
        assert [request.headers["Authorization"] for request in server.requests] == [
            "Bearer t1",
            "Bearer t2",
            "Bearer t2",
        ]
        client.close()


def test_replaced_token_file_is_read_again(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("one")
    with FakeApiServer(one_service_cluster()) as server:
        path = write_kubeconfig(tmp_path, cluster={"server": server.url}, user={"tokenFile": "token"})
        client = ApiClient(insecure_settings(path))
        client.request("GET", "/api/v1/services")
        (tmp_path / "token").write_text("another")
        client.request("GET", "/api/v1/services")
        assert [request.headers["Authorization"] for request in server.requests] == ["Bearer one", "Bearer another"]
        client.close()


BROKEN_LATER: dict[str, dict[str, Any]] = {
    "not YAML": {},
    "invalid proxy-url": {"proxy-url": "nonsense"},
    "invalid server URL": {"server": "https://[::1"},
    "invalid CA data": {"certificate-authority-data": "aGk="},
}


@pytest.mark.parametrize("how", BROKEN_LATER)
def test_kubeconfig_that_becomes_invalid_is_not_used(
    how: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with FakeApiServer(one_service_cluster()) as server:
        path = write_kubeconfig(tmp_path, cluster={"server": server.url})
        client = ApiClient(insecure_settings(path))
        if BROKEN_LATER[how]:
            write_kubeconfig(tmp_path, cluster={"server": "https://a:1", **BROKEN_LATER[how]})
        else:
            path.write_text("broken: [")
        for _ in range(3):
            client.request("GET", "/api/v1/services")
        client.close()
    assert len(warnings(caplog)) == 1
    assert "the previous configuration stays in use" in warnings(caplog)[0]


def test_token_file_replaced_during_the_read_is_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tokens = ["second"]

    def read_and_replace(path: str) -> Any:
        config = read_kubeconfig(path)
        if tokens:
            (tmp_path / "token").write_text(tokens.pop())
        return config

    monkeypatch.setattr(transport, "read_kubeconfig", read_and_replace)
    (tmp_path / "token").write_text("one")
    with FakeApiServer(one_service_cluster()) as server:
        path = write_kubeconfig(tmp_path, cluster={"server": server.url}, user={"tokenFile": "token"})
        client = ApiClient(insecure_settings(path))
        client.request("GET", "/api/v1/services")
        assert server.requests[0].headers["Authorization"] == "Bearer second"
        client.close()
