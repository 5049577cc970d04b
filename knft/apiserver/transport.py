"""Transport: the current URL, credentials and connection pools for one API server.

Files that are replaced while knft runs (kubeconfig, token, CA, client certificate) are read again. If one of them is
invalid then, the previous configuration stays in use.
"""

import logging
import ssl
import threading
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

import urllib3

from knft.apiserver.client_config import ClientConfig, FileSignatures, authorization_error
from knft.apiserver.exec_plugin import PluginCredentials, run_plugin
from knft.apiserver.in_cluster import PodEnvironment, in_cluster_config
from knft.apiserver.kubeconfig import read_kubeconfig
from knft.apiserver.plugin_runner import PluginRunner
from knft.apiserver.proxy import proxy_for
from knft.apiserver.server_url import is_http_url, without_credentials
from knft.apiserver.sockets import Sockets, Timeouts, track_connections
from knft.apiserver.tls import make_tls_context
from knft.configuration.settings import ClientSettings
from knft.errors import ApiServerError, UsageError
from knft.source.files import file_signature
from knft.source.formatting import format_value

log = logging.getLogger("knft")

RENEWAL_SECONDS = 2.0
"""How long a request waits for a plugin while the previous credentials are still valid."""
INSECURE_FLAG = "--insecure-send-credentials-without-tls"
_POOL_SIZE = 8
"""The number of idle connections that are kept: one for each watched resource, for events, and some more."""


class RequestTarget(NamedTuple):
    """What a request needs: the server's URL without a trailing slash, headers, and connection pools.

    ``generation`` counts how often the configuration was read again.
    """

    server: str
    headers: dict[str, str]
    pool_manager: urllib3.PoolManager
    generation: int


class Transport:
    """Keeps the configuration and connection pools for one API server current; safe to use from any thread."""

    def __init__(
        self,
        settings: ClientSettings,
        sockets: Sockets,
        timeouts: Timeouts | None = None,
        in_cluster: PodEnvironment | None = None,
    ) -> None:
        """Read the configuration; raise UsageError if it is invalid. Nothing is sent."""
        # urllib3's warnings repeat the text of its errors, which knft logs.
        logging.getLogger("urllib3").setLevel(logging.ERROR)
        self._settings = settings
        self._sockets = sockets
        self._timeouts = timeouts or Timeouts()
        self._in_cluster = in_cluster or PodEnvironment()
        self._lock = threading.Lock()
        """Held while the configuration is read, and so while a plugin runs."""
        self._renewal_lock = threading.Lock()
        self._renewal: threading.Thread | None = None
        self._plugin_runner = PluginRunner(self._timeouts.plugin, sockets.closed)
        # A runner of its own: a token can be renewed while a plugin of a reload still hangs.
        self._refresh_runner = PluginRunner(self._timeouts.plugin, sockets.closed)
        self._last_warning = ""
        loaded = self._load()
        self._current = _Current(loaded, self._make_pool_manager(loaded), 0)

    @property
    def server(self) -> str:
        """The server's URL."""
        return self._current.loaded.server

    def request_target(self) -> RequestTarget:
        """Return the target of the next request; read files that were replaced.

        If a plugin has to run, requests use the previous credentials until it ends, as long as these are valid.
        Otherwise this raises ApiServerError if the plugin gives a token that cannot be sent, or takes too long.
        """
        loaded, now = self._current.loaded, datetime.now(UTC)
        if loaded.has_replaced_files() or loaded.needs_token(now):
            if loaded.config.plugin is not None and loaded.is_valid(now):
                self._renew_in_background()
            else:
                self._renew()
        current = self._current
        return RequestTarget(current.loaded.server, current.loaded.headers, current.pool_manager, current.generation)

    def _renew_in_background(self) -> None:
        """Renew the credentials in a thread, unless one does so; wait for it if it is quick, as most plugins are."""
        with self._renewal_lock:
            if self._renewal is not None and self._renewal.is_alive():
                return
            self._renewal = renewal = threading.Thread(target=self._try_to_renew, name="credentials", daemon=True)
            renewal.start()
        renewal.join(RENEWAL_SECONDS)

    def _try_to_renew(self) -> None:
        try:
            self._renew()
        except ApiServerError as error:
            if not self._sockets.closed.is_set():
                self._warn_once(f"{error}; the previous credentials stay in use until they expire")

    def _renew(self) -> None:
        with self._lock:
            if self._current.loaded.has_replaced_files():
                self._reload()
            self._refresh_token()

    def reload(self, refused: RequestTarget) -> None:
        """Read the configuration again because the server refused the credentials of ``refused``.

        Does nothing if another thread has done so since ``refused`` was made.
        """
        with self._lock:
            if refused.generation == self._current.generation:
                self._reload()

    def _reload(self) -> None:
        current = self._current
        self._current = current._replace(generation=current.generation + 1)
        try:
            loaded = self._load()
            same_pools = loaded.pool_key == current.loaded.pool_key
            pool_manager = current.pool_manager if same_pools else self._make_pool_manager(loaded)
        except UsageError as error:
            self._warn_once(f"{error}; the previous configuration stays in use")
            return
        self._last_warning = ""
        self._current = _Current(loaded, pool_manager, current.generation + 1)

    def _warn_once(self, text: str) -> None:
        if text != self._last_warning:
            log.warning("%s", text)
        self._last_warning = text

    def _refresh_token(self) -> None:
        """Run the plugin again if its token has expired."""
        loaded = self._current.loaded
        if not loaded.needs_token(datetime.now(UTC)):
            return

        def run() -> PluginCredentials | None:
            try:
                return _run_configured_plugin(loaded.config)
            except UsageError as error:
                self._warn_once(f"{error}; the previous token stays in use")
                return None

        try:
            credentials = self._refresh_runner.run(loaded.config.credentials_source, run)
        except UsageError as error:
            raise ApiServerError(str(error)) from error
        if credentials is None or not credentials.token:
            return
        refreshed = loaded._replace(credentials=credentials)
        problem = authorization_error(refreshed.authorization)
        if problem:
            msg = f"{loaded.config.credentials_source}: {problem}"
            raise ApiServerError(msg)
        self._current = self._current._replace(loaded=refreshed)

    def _make_pool_manager(self, loaded: "_Loaded") -> urllib3.PoolManager:
        config = loaded.config
        if config.insecure_skip_tls_verify:
            # The kubeconfig asks for it; urllib3 would warn about every request.
            urllib3.disable_warnings(urllib3.exceptions.InsecureRequestWarning)
        options: dict[str, Any] = {
            "maxsize": _POOL_SIZE,
            "cert_reqs": ssl.CERT_NONE if config.insecure_skip_tls_verify else ssl.CERT_REQUIRED,
            "ssl_context": loaded.tls_context,
            **({"server_hostname": config.tls_server_name} if config.tls_server_name else {}),
        }
        try:
            pool_manager = (
                urllib3.ProxyManager(loaded.proxy, **options) if loaded.proxy else urllib3.PoolManager(**options)
            )
        except (urllib3.exceptions.HTTPError, ValueError) as error:
            # A kubeconfig's proxy URL is checked when it is read, the environment's is not.
            proxy = format_value(without_credentials(loaded.proxy))
            msg = f"{config.source}: cannot connect through the proxy {proxy} ({type(error).__name__})"
            raise UsageError(msg) from error
        track_connections(pool_manager, self._sockets, self._timeouts)
        return pool_manager

    def _load(self) -> "_Loaded":
        config = self._read_config()
        for warning in config.warnings:
            log.warning("%s", warning)
        credentials = self._run_plugin(config) if config.plugin is not None else None
        server = config.server
        if self._settings.server:
            server = _master_url(self._settings.server, uses_tls=_uses_tls(config, credentials))
        elif not is_http_url(server):
            msg = f"{config.source}: {format_value(without_credentials(server))} is not a URL"
            raise UsageError(msg)
        certificate, key = config.client_certificate, config.client_key
        if credentials is not None and credentials.certificate:
            certificate, key = credentials.certificate, credentials.key
        verify = not config.insecure_skip_tls_verify
        context = make_tls_context(config.source, config.ca, certificate, key, verify=verify)
        proxy = proxy_for(server, config.proxy_url)
        contents = (config.ca.data, certificate.data, key.data)
        pool_key = (server, contents, verify, config.tls_server_name, proxy)
        loaded = _Loaded(config, server, credentials, context, proxy, pool_key)
        problem = authorization_error(loaded.authorization)
        if problem:
            msg = f"{config.credentials_source}: {problem}"
            raise UsageError(msg)
        if loaded.authorization and server.startswith("http:") and not self._settings.sends_credentials_without_tls:
            raise UsageError(_without_tls_error(loaded))
        return loaded

    def _read_config(self) -> ClientConfig:
        if self._settings.kubeconfig:
            return read_kubeconfig(self._settings.kubeconfig)
        if self._settings.server:
            return ClientConfig(source="--master", credentials_source="--master")
        return in_cluster_config(self._in_cluster)

    def _run_plugin(self, config: ClientConfig) -> PluginCredentials | None:
        """Return the plugin's credentials, None if it fails and the kubeconfig has other credentials."""

        def run() -> PluginCredentials | None:
            try:
                return _run_configured_plugin(config)
            except UsageError as error:
                if not config.authorization and not config.client_certificate:
                    raise
                self._warn_once(f"{error}; using the other credentials of the kubeconfig")
                return None

        return self._plugin_runner.run(config.credentials_source, run)


class _Loaded(NamedTuple):
    """A configuration in use, with the credentials that its plugin gave.

    Connections depend on ``pool_key`` only: a new token needs no new connections.
    """

    config: ClientConfig
    server: str
    credentials: PluginCredentials | None
    tls_context: ssl.SSLContext
    proxy: str
    pool_key: tuple[object, ...]

    def has_replaced_files(self) -> bool:
        """Tell whether a file of the configuration has changed since it was read."""
        return self.config.file_signatures != _signatures(self.config.file_signatures)

    def needs_token(self, now: datetime) -> bool:
        """Tell whether the plugin has to run again at ``now``."""
        return self.credentials is not None and self.credentials.has_expired(now)

    def is_valid(self, now: datetime) -> bool:
        """Tell whether a server should still accept the plugin's credentials at ``now``."""
        return self.credentials is None or self.credentials.is_valid(now)

    @property
    def authorization(self) -> str:
        """The value of the Authorization header, "" for none."""
        if self.credentials is not None and self.credentials.token:
            return f"Bearer {self.credentials.token}".strip()
        return self.config.authorization

    @property
    def headers(self) -> dict[str, str]:
        """The headers that authenticate a request."""
        return {"Authorization": self.authorization} if self.authorization else {}


class _Current(NamedTuple):
    """What requests use; replaced as a whole, so that a request needs no lock to read it.

    ``generation`` counts how often the configuration was read again.
    """

    loaded: _Loaded
    pool_manager: urllib3.PoolManager
    generation: int


def _run_configured_plugin(config: ClientConfig) -> PluginCredentials | None:
    return run_plugin(config.plugin, config.credentials_source) if config.plugin is not None else None


def _without_tls_error(loaded: _Loaded) -> str:
    through_proxy = f" through the proxy {without_credentials(loaded.proxy)}" if loaded.proxy else ""
    return (
        f"{loaded.config.credentials_source}: the credentials would be sent to {without_credentials(loaded.server)}"
        f"{through_proxy} without TLS; use an https:// server, or give {INSECURE_FLAG}"
    )


def _uses_tls(config: ClientConfig, credentials: PluginCredentials | None) -> bool:
    plugin_certificate = credentials is not None and bool(credentials.certificate)
    return bool(config.ca) or bool(config.client_certificate) or plugin_certificate


def _master_url(text: str, *, uses_tls: bool) -> str:
    """Return the URL that ``--master`` means; without a scheme it is HTTPS if the kubeconfig has certificates."""
    scheme = "https" if uses_tls else "http"
    url = (text if "://" in text else f"{scheme}://{text}").rstrip("/")
    if not is_http_url(url):
        msg = f"--master: {format_value(without_credentials(text))} is not a URL such as https://192.0.2.1:6443"
        raise UsageError(msg)
    return url


def _signatures(files: FileSignatures) -> FileSignatures:
    return {path: file_signature(Path(path)) for path in files}
