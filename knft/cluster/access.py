"""Access: where the API server is, and what it wants to see of who asks: the only importer of the kubernetes package.

The package reads kubeconfigs, what a pod is given, and plugins; files that are replaced while knft runs (a token, a
CA, certificates) are read again, and one that cannot be read then leaves things as they were.
"""

import logging
import os
import ssl
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import urllib3
from kubernetes.client import Configuration
from kubernetes.client.rest import RESTClientObject
from kubernetes.config import ConfigException, load_kube_config
from kubernetes.config.incluster_config import (
    SERVICE_CERT_FILENAME,
    SERVICE_HOST_ENV_NAME,
    SERVICE_TOKEN_FILENAME,
    InClusterConfigLoader,
)

from knft.cluster.kubeconfig import Kubeconfig, look_through
from knft.cluster.wire import Sockets, Timing, track
from knft.configuration.settings import ClientSettings
from knft.errors import ClusterError, UsageError
from knft.source.files import Signature, shown_path, signature
from knft.source.words import shown

log = logging.getLogger("knft")


class Pod(NamedTuple):
    """What a pod is given to reach the API server with."""

    token: str = SERVICE_TOKEN_FILENAME
    authority: str = SERVICE_CERT_FILENAME
    environment: Mapping[str, str] = os.environ


class Way(NamedTuple):
    """What a request is sent with: the server's address without a slash at its end, headers, and connections."""

    server: str
    headers: dict[str, str]
    pools: urllib3.PoolManager


class Access:
    """The way to one API server, as it is now; from any thread."""

    def __init__(
        self, settings: ClientSettings, sockets: Sockets, timing: Timing | None = None, pod: Pod | None = None
    ) -> None:
        """Read the configuration; raise UsageError where it cannot be meant."""
        # What it has to say is in the errors that it raises.
        logging.getLogger("urllib3").setLevel(logging.ERROR)
        self._settings = settings
        self._sockets = sockets
        self._timing = timing or Timing()
        self._pod = pod or Pod()
        self._lock = threading.Lock()
        self._failed = ""
        self._loaded = self._load()
        self._pools = self._make_pools(self._loaded)

    @property
    def server(self) -> str:
        """The server's address."""
        return self._loaded.server

    def way(self) -> Way:
        """Return the way to the server; what has been replaced meanwhile is read again.

        Raises ClusterError where a plugin gives a token that cannot be sent.
        """
        with self._lock:
            if self._loaded.signatures != _signatures(self._loaded.files):
                self._load_again()
            headers = _headers(self._loaded.configuration)
            wrong = _wrong_with(headers)
            if wrong:
                msg = f"{self._loaded.token_place}: {wrong}"
                raise ClusterError(msg)
            return Way(self._loaded.server, headers, self._pools)

    def renew(self) -> None:
        """Read everything again: the server does not take the credentials there are."""
        with self._lock:
            self._load_again()

    def _load_again(self) -> None:
        try:
            loaded = self._load()
            pools = self._pools if loaded.transport == self._loaded.transport else self._make_pools(loaded)
        except UsageError as error:
            if str(error) != self._failed:
                log.warning("%s; what was read before stays in use", error)
            self._failed = str(error)
            return
        self._failed = ""
        self._loaded, self._pools = loaded, pools

    def _make_pools(self, loaded: "_Loaded") -> urllib3.PoolManager:
        pools: urllib3.PoolManager = RESTClientObject(loaded.configuration).pool_manager
        track(pools, self._sockets, self._timing)
        return pools

    def _load(self) -> "_Loaded":
        settings, configuration = self._settings, Configuration()
        files: tuple[str, ...] = ()
        token_place = ""
        if settings.kubeconfig:
            where, token_place, files = _load_kubeconfig(settings.kubeconfig, configuration)
        elif settings.server:
            where = "--master"
        else:
            where, files = self._load_pod(configuration)
            token_place = f"the ServiceAccount of this pod, {shown_path(self._pod.token)}"
        server = _server(settings.server, configuration) if settings.server else str(configuration.host).rstrip("/")
        configuration.host = server
        _check_certificates(where, configuration)
        wrong = _wrong_with(_headers(configuration))
        if wrong:
            msg = f"{token_place}: {wrong}"
            raise UsageError(msg)
        return _Loaded(configuration, server, files, token_place)

    def _load_pod(self, configuration: Configuration) -> tuple[str, tuple[str, ...]]:
        pod = self._pod
        if not pod.environment.get(SERVICE_HOST_ENV_NAME):
            msg = (
                f"there is no way to an API server: this is no pod ({SERVICE_HOST_ENV_NAME} is not set); give "
                "--kubeconfig FILE (clientConnection.kubeconfig in a configuration file), --master, or --manifests DIR"
            )
            raise UsageError(msg)
        try:
            InClusterConfigLoader(  # type: ignore[no-untyped-call]
                token_filename=pod.token,
                cert_filename=pod.authority,
                try_refresh_token=False,
                environ=pod.environment,
            ).load_and_set(configuration)
        except (ConfigException, OSError, UnicodeDecodeError) as error:
            msg = (
                f"the ServiceAccount of this pod ({shown_path(pod.token)}, {shown_path(pod.authority)}): {_line(error)}"
                "; mount its token, or give --kubeconfig"
            )
            raise UsageError(msg) from error
        return f"the ServiceAccount of this pod, {shown_path(pod.authority)}", (pod.token, pod.authority)


class _Loaded:
    """A configuration that was read, and the files as they were just before."""

    def __init__(self, configuration: Configuration, server: str, files: tuple[str, ...], token_place: str) -> None:
        self.configuration = configuration
        self.token_place = token_place
        self.server = server
        self.files = files
        self.signatures = _signatures(files)
        tls = (configuration.ssl_ca_cert, configuration.cert_file, configuration.key_file)
        self.transport = (
            server,
            tuple(Path(path).read_bytes() if path else b"" for path in tls),
            configuration.verify_ssl,
            getattr(configuration, "tls_server_name", None),
            configuration.proxy,
        )
        """What connections depend on; a token that is replaced needs none of them made anew."""


def _load_kubeconfig(path: str, configuration: Configuration) -> tuple[str, str, tuple[str, ...]]:
    """Return words for the kubeconfig, and for where its token stands, and the files that it is made of."""
    found = look_through(path)
    where = f"kubeconfig {shown_path(path)}, context {shown(found.context)}"
    try:
        load_kube_config(  # type: ignore[no-untyped-call]
            config_file=found.path, client_configuration=configuration, persist_config=False
        )
    except Exception as error:  # The package lets through whatever a strange field leads to.
        msg = f"{where}: {_line(error)}"
        raise UsageError(msg) from error
    _check_plugin(where, found, configuration)
    return where, f"{where}: {found.token}", (found.path, *found.files)


def _check_plugin(where: str, found: Kubeconfig, configuration: Configuration) -> None:
    """Refuse a plugin that has given nothing: the package only logs why."""
    if found.plugin and not _headers(configuration) and not configuration.cert_file:
        msg = f"{where}: user.exec: {shown(found.plugin)} gives no credentials (the log has its reason)"
        raise UsageError(msg)


def _server(text: str, configuration: Configuration) -> str:
    """Return the address that ``--master`` means; without a scheme, it is TLS where there is anything to do it with."""
    if "://" in text:
        if not text.startswith(("http://", "https://")):
            msg = f"--master: {shown(text)} is not an address such as https://192.0.2.1:6443"
            raise UsageError(msg)
        return text.rstrip("/")
    scheme = "https" if configuration.ssl_ca_cert or configuration.cert_file else "http"
    return f"{scheme}://{text.rstrip('/')}"


def _check_certificates(where: str, configuration: Configuration) -> None:
    """Raise UsageError where certificates are none; urllib3 would say so at each request, and not in which file."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    path: Any = configuration.ssl_ca_cert
    try:
        if path:
            context.load_verify_locations(cafile=path)
        if configuration.cert_file:
            path = configuration.cert_file
            # Without a password given, OpenSSL would ask for one at the terminal.
            context.load_cert_chain(path, configuration.key_file or None, password=lambda: "")
    except (OSError, ssl.SSLError) as error:
        sort = "a CA" if path == configuration.ssl_ca_cert else "a client certificate with its key"
        msg = f"{where}: {shown_path(path)} cannot be used as {sort}: {_line(error)}"
        raise UsageError(msg) from error


def _headers(configuration: Configuration) -> dict[str, str]:
    """Return the headers that say who asks; a plugin's credentials that end soon are made anew by the package."""
    settings: Mapping[str, Any] = configuration.auth_settings()
    return {
        item["key"].title(): str(item["value"]).strip()
        for item in settings.values()
        if item["in"] == "header" and item["value"]
    }


def _wrong_with(headers: Mapping[str, str]) -> str:
    """Return why headers cannot be sent, "" where they can; the words never hold what is secret."""
    for value in headers.values():
        if len(value.splitlines()) > 1:
            return "the token has more than one line"
        if not value.isascii() or not value.isprintable():
            return "the token has characters that no token has"
    return ""


def _signatures(files: tuple[str, ...]) -> tuple[Signature | None, ...]:
    return tuple(signature(Path(path)) for path in files)


def _line(error: Exception) -> str:
    """Return an error in one line."""
    return " ".join(str(error).split()) or type(error).__name__
