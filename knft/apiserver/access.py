"""Access: where the API server is, and what it wants to see of who asks: the only importer of the kubernetes package.

The package reads kubeconfigs, what a pod is given, and plugins; files that are replaced while knft runs (a token, a
CA, certificates) are read again, and one that cannot be read then leaves things as they were.
"""

import logging
import os
import shutil
import tempfile
import threading
from collections.abc import Iterable, Mapping
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

from knft.apiserver.address import is_address, without_credentials
from knft.apiserver.kubeconfig import Kubeconfig, expanded, look_through
from knft.apiserver.patience import Patience
from knft.apiserver.trust import Certificates, made_context
from knft.apiserver.wire import Sockets, Timing, track
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
    """What a request is sent with: the server's address without a slash at its end, headers, and connections.

    ``reading`` tells from which reading of the configuration it comes.
    """

    server: str
    headers: dict[str, str]
    pools: urllib3.PoolManager
    reading: int


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
        self._patience = Patience(self._timing.plugin, sockets.closed)
        self._refreshing = Patience(self._timing.plugin, sockets.closed)
        """Apart: what a plugin gave before is used while it is asked for something new."""
        self._failed = ""
        self._readings = 0
        """How often the configuration was read again."""
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
            if self._loaded.files != _signatures(self._loaded.files):
                self._load_again()
            headers = self._headers_now()
            wrong = _wrong_with(headers)
            if wrong:
                msg = f"{self._loaded.source.token}: {wrong}"
                raise ClusterError(msg)
            return Way(self._loaded.server, headers, self._pools, self._readings)

    def _headers_now(self) -> dict[str, str]:
        """Return the headers that say who asks; a plugin is asked again where what it gave has ended."""
        loaded = self._loaded
        if not loaded.source.plugin:
            return _headers(loaded.configuration)
        try:
            return self._refreshing.run(loaded.source.token, loaded.refreshed)
        except UsageError as error:
            raise ClusterError(str(error)) from error

    def renew(self, refused: Way) -> None:
        """Read everything again, unless it was meanwhile: the server does not take the credentials of ``refused``."""
        with self._lock:
            if refused.reading == self._readings:
                self._load_again()

    def _load_again(self) -> None:
        self._readings += 1
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
        if not loaded.configuration.verify_ssl:
            # The kubeconfig asks for it; there is no need to be told with each request.
            urllib3.disable_warnings(urllib3.exceptions.InsecureRequestWarning)
        try:
            pools: urllib3.PoolManager = RESTClientObject(loaded.configuration).pool_manager
        except Exception as error:  # As for kubeconfigs; a proxy that the environment names is looked at nowhere else.
            proxy = shown(without_credentials(str(loaded.configuration.proxy)))
            msg = f"{loaded.source.where}: no connections can be made by the proxy {proxy} ({type(error).__name__})"
            raise UsageError(msg) from error
        for name in ("ca_certs", "ca_cert_data", "cert_file", "key_file"):
            pools.connection_pool_kw.pop(name, None)
        pools.connection_pool_kw["ssl_context"] = loaded.context
        track(pools, self._sockets, self._timing)
        return pools

    def _load(self) -> "_Loaded":
        settings = self._settings
        if settings.kubeconfig:
            before = _signatures((str(expanded(settings.kubeconfig)),))
            found = look_through(settings.kubeconfig)
            where = f"kubeconfig {shown_path(settings.kubeconfig)}, context {shown(found.context)}"
            source = _Source(where, f"{where}: {found.token}", found.plugin)
            files = before | _signatures(found.files)

            def read() -> _Loaded:
                folder = _folder() if found.inline or found.plugin else ""
                try:
                    configuration = _load_kubeconfig(source, found, folder)
                    return _Loaded(source, configuration, settings.server, files, folder)
                finally:
                    _remove(folder)

            return self._patience.run(source.token, read) if found.plugin else read()
        if settings.server:
            return _Loaded(_Source("--master"), Configuration(), settings.server, {})
        where = "the ServiceAccount of this pod"
        source = _Source(f"{where}, {shown_path(self._pod.authority)}", f"{where}, {shown_path(self._pod.token)}")
        files = _signatures((self._pod.token, self._pod.authority))
        return _Loaded(source, self._load_pod(), "", files)

    def _load_pod(self) -> Configuration:
        pod, configuration = self._pod, Configuration()
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
        return configuration


class _Source(NamedTuple):
    """Words for where a configuration comes from, and for where its token stands; the plugin that is asked, if any."""

    where: str
    token: str = ""
    plugin: str = ""


class _Loaded:
    """A configuration that was read, and the files as they were just before."""

    def __init__(
        self,
        source: _Source,
        configuration: Configuration,
        master: str,
        files: "_Files",
        folder: str = "",
    ) -> None:
        """Take all that connections need, while ``folder`` is there; raise UsageError where it cannot be meant."""
        self.source = source
        self.configuration = configuration
        self.server = _server(master, configuration) if master else str(configuration.host).rstrip("/")
        if not is_address(self.server):
            msg = f"{source.where}: {shown(without_credentials(self.server))} is not an address"
            raise UsageError(msg)
        self.files = files
        self._folder = folder
        configuration.host = self.server
        certificates = Certificates(
            configuration.ssl_ca_cert or "",
            configuration.cert_file or "",
            configuration.key_file or "",
            bool(configuration.verify_ssl),
            folder,
        )
        try:
            # Before they are loaded: what is exchanged meanwhile is loaded again, and not taken for the same.
            contents = certificates.contents()
        except OSError as error:
            msg = f"{source.where}: {_line(error)}"
            raise UsageError(msg) from error
        self.context = made_context(source.where, certificates)
        self.transport = (
            self.server,
            contents,
            configuration.verify_ssl,
            getattr(configuration, "tls_server_name", None),
            configuration.proxy,
        )
        """What connections depend on; a token that is replaced needs none of them made anew."""
        wrong = _wrong_with(_headers(configuration))
        if wrong:
            msg = f"{source.token}: {wrong}"
            raise UsageError(msg)

    def refreshed(self) -> dict[str, str]:
        """Return the headers, after the package has asked a plugin again if it had to."""
        try:
            return _headers(self.configuration)
        finally:
            _remove(self._folder)


def _load_kubeconfig(source: _Source, found: Kubeconfig, folder: str) -> Configuration:
    """Read a kubeconfig; what it holds of certificates is in ``folder`` then."""
    configuration = Configuration()
    try:
        load_kube_config(  # type: ignore[no-untyped-call]
            config_file=found.path,
            client_configuration=configuration,
            persist_config=False,
            temp_file_path=folder or None,
        )
    except Exception as error:  # noqa: BLE001 - the package lets through whatever a strange field leads to
        # Its words may go on with the whole entry of the user, credentials and all.
        msg = f"{source.where}: {_line(error).partition('{')[0].strip() or type(error).__name__}"
        raise UsageError(msg) from None
    _check_plugin(source.where, found, configuration)
    return configuration


def _folder() -> str:
    """Return a new folder that nobody else looks into."""
    try:
        return tempfile.mkdtemp(prefix="knft-")
    except OSError as error:
        msg = f"there is no place for certificates that stand in a kubeconfig: {_line(error)}; set TMPDIR"
        raise UsageError(msg) from error


def _remove(folder: str) -> None:
    if folder:
        shutil.rmtree(folder, ignore_errors=True)


def _check_plugin(where: str, found: Kubeconfig, configuration: Configuration) -> None:
    """Refuse a plugin that has given nothing: the package only logs why."""
    if found.plugin and not _headers(configuration) and not configuration.cert_file:
        msg = f"{where}: user.exec: {shown(found.plugin)} gives no credentials (the log has its reason)"
        raise UsageError(msg)


def _server(text: str, configuration: Configuration) -> str:
    """Return the address that ``--master`` means; without a scheme, it is TLS where there is anything to do it with."""
    scheme = "https" if configuration.ssl_ca_cert or configuration.cert_file else "http"
    address = (text if "://" in text else f"{scheme}://{text}").rstrip("/")
    if not is_address(address):
        msg = f"--master: {shown(without_credentials(text))} is not an address such as https://192.0.2.1:6443"
        raise UsageError(msg)
    return address


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


_Files = dict[str, Signature | None]


def _signatures(files: Iterable[str]) -> _Files:
    return {path: signature(Path(path)) for path in files}


def _line(error: Exception) -> str:
    """Return an error in one line."""
    return " ".join(str(error).split()) or type(error).__name__
