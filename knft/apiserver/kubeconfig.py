"""Reads and checks a kubeconfig.

An invalid file raises UsageError with one line that names the file, the context and the field. Whether a server answers
at the URL is not checked.
"""

import base64
import binascii
from pathlib import Path
from typing import Any, NoReturn

from urllib3.util import make_headers

from knft.apiserver.client_config import ClientConfig, ExecPlugin, FileSignatures, PemSource
from knft.apiserver.server_url import is_http_url, without_credentials
from knft.errors import SourceError, UsageError
from knft.source import yaml_documents
from knft.source.files import error_reason, file_signature, format_path, read_manifest
from knft.source.formatting import describe_type, format_value, join_alternatives

MAX_NAMES = 10
"""The maximum number of contexts, clusters or users that a message lists."""


def read_kubeconfig(path: str) -> ClientConfig:
    """Return the configuration of the current context; raise UsageError if the file is invalid."""
    return _KubeconfigReader(path).read()


def _expand_user(path: str) -> Path:
    try:
        return Path(path).expanduser()
    except RuntimeError as error:
        msg = f"kubeconfig {format_path(path)}: cannot expand ~: no home directory found; give the full path"
        raise UsageError(msg) from error


class _KubeconfigReader:
    """Reads one file, once."""

    def __init__(self, path: str) -> None:
        self._path = _expand_user(path)
        self._source = f"kubeconfig {format_path(path)}"
        self._files: FileSignatures = {}
        self._warnings: tuple[str, ...] = ()

    def read(self) -> ClientConfig:
        document = self._parse()
        self._check_kind(document)
        name = self._current_context(document)
        context = self._mapping(self._find(document, "contexts", name, "current-context"), "context", name)
        self._source = f"{self._source}, context {format_value(name)}"
        cluster_name = self._text(context, "cluster", "context.cluster")
        cluster = self._mapping(
            self._find(document, "clusters", cluster_name, "context.cluster"), "cluster", cluster_name
        )
        user: dict[str, Any] = {}
        if context.get("user") not in (None, ""):
            user_name = self._text(context, "user", "context.user")
            user = self._mapping(self._find(document, "users", user_name, "context.user"), "user", user_name)
        return self._config(cluster, user)

    def _config(self, cluster: dict[str, Any], user: dict[str, Any]) -> ClientConfig:
        server = self._url(cluster, "server", "https://192.0.2.1:6443", required=True)
        proxy_url = self._url(cluster, "proxy-url", "http://192.0.2.1:3128")
        tls_server_name = self._optional_text(cluster, "tls-server-name", "cluster.tls-server-name")
        ca = self._pem(cluster, "certificate-authority", "cluster.certificate-authority")
        insecure = self._insecure(cluster)
        certificate = self._pem(user, "client-certificate", "user.client-certificate")
        key = self._pem(user, "client-key", "user.client-key")
        # Certificates of a kubeconfig are only used with a server that it reaches over TLS.
        uses_tls = server.startswith("https")
        authorization, plugin, credentials_source = self._credentials(user, cluster)
        return ClientConfig(
            source=self._source,
            server=server.rstrip("/"),
            ca=ca if uses_tls else PemSource(),
            client_certificate=certificate if uses_tls else PemSource(),
            client_key=key if uses_tls else PemSource(),
            insecure_skip_tls_verify=insecure,
            tls_server_name=tls_server_name,
            proxy_url=proxy_url,
            authorization=authorization,
            credentials_source=f"{self._source}: {credentials_source}",
            plugin=plugin,
            file_signatures=self._files,
            warnings=self._warnings,
        )

    def _fail(self, message: str, cause: Exception | None = None) -> NoReturn:
        msg = f"{self._source}: {message}"
        raise UsageError(msg) from cause

    def _read_file(self, path: Path) -> bytes:
        # The signature comes first: a file that is replaced during the read is read again later.
        self._files[str(path)] = file_signature(path)
        return read_manifest(path)

    def _parse(self) -> dict[str, Any]:
        try:
            data = self._read_file(self._path)
        except (OSError, SourceError) as error:
            self._fail(f"{error_reason(error)}; give --kubeconfig a readable file", error)
        try:
            documents = yaml_documents.load(data)
        except SourceError as error:
            self._fail(str(error), error)
        if len(documents) > 1:
            self._fail(f"expected one YAML document, found {len(documents)}")
        document = documents[0].value if documents else None
        if document is None:
            self._fail("the file is empty")
        if not isinstance(document, dict):
            self._fail(f"expected a mapping of kind Config, found {describe_type(document)}")
        self._warnings = tuple(f"{self._source}: {remark}" for remark in documents[0].warnings)
        return document

    def _check_kind(self, document: dict[str, Any]) -> None:
        kind, version = document.get("kind", "Config"), document.get("apiVersion", "v1")
        if (kind, version) != ("Config", "v1"):
            self._fail(
                f"expected kind 'Config' of apiVersion 'v1', found kind {format_value(kind)} of {format_value(version)}"
            )

    def _current_context(self, document: dict[str, Any]) -> str:
        name = document.get("current-context")
        if name in (None, ""):
            names = self._names(document, "contexts")
            advice = f"set it to {join_alternatives(names)}" if names else "the file has no contexts"
            self._fail(f"current-context: not set; {advice}")
        return self._text(document, "current-context", "current-context")

    def _names(self, document: dict[str, Any], field: str) -> tuple[str, ...]:
        items = document.get(field)
        names = [item.get("name") for item in items if isinstance(item, dict)] if isinstance(items, list) else []
        return tuple(format_value(name) for name in names if isinstance(name, str))[:MAX_NAMES]

    def _find(self, document: dict[str, Any], field: str, name: str, referrer: str) -> dict[str, Any]:
        """Return the entry of ``field`` with a name, to which the field ``referrer`` refers."""
        items = document.get(field)
        if items is not None and not isinstance(items, list):
            self._fail(f"{field}: expected a list, found {describe_type(items)}")
        for index, item in enumerate(items or ()):
            if not isinstance(item, dict) or not isinstance(item.get("name"), str):
                self._fail(f"{field}[{index}]: expected a mapping with a name")
        found: list[dict[str, Any]] = [item for item in items or () if item["name"] == name]
        if len(found) > 1:
            self._fail(f"{field}: {format_value(name)} appears {len(found)} times; keep one")
        if not found:
            names = self._names(document, field)
            available = f"; use {join_alternatives(names)}" if names else ""
            self._fail(f"{referrer}: {format_value(name)} not found in {field}{available}")
        return found[0]

    def _mapping(self, item: dict[str, Any], field: str, name: str) -> dict[str, Any]:
        value = item.get(field)
        if value is None and field == "user":
            return {}
        if not isinstance(value, dict):
            self._fail(f"{field} of {format_value(name)}: {_expected('a mapping', value)}")
        return value

    def _text(self, mapping: dict[str, Any], field: str, label: str) -> str:
        value = mapping.get(field)
        if not isinstance(value, str) or not value:
            self._fail(f"{label}: {_expected('text', value)}")
        return value

    def _optional_text(self, mapping: dict[str, Any], field: str, label: str) -> str:
        return "" if mapping.get(field) in (None, "") else self._text(mapping, field, label)

    def _list(self, mapping: dict[str, Any], field: str, label: str) -> list[Any]:
        value = mapping.get(field)
        if not isinstance(value, list | None):
            self._fail(f"{label}: {_expected('a list', value)}")
        return value or []

    def _url(self, cluster: dict[str, Any], field: str, example: str, *, required: bool = False) -> str:
        text = (self._text if required else self._optional_text)(cluster, field, f"cluster.{field}")
        if text and not is_http_url(text):
            self._fail(f"cluster.{field}: {format_value(without_credentials(text))} is not a URL such as {example}")
        return text

    def _insecure(self, cluster: dict[str, Any]) -> bool:
        value = cluster.get("insecure-skip-tls-verify")
        if not isinstance(value, bool | None):
            # The text "false" would be true in Python.
            self._fail(f"cluster.insecure-skip-tls-verify: {_expected('true or false', value)}")
        if value and (cluster.get("certificate-authority") or cluster.get("certificate-authority-data")):
            self._fail("cluster.insecure-skip-tls-verify: cannot be combined with a certificate authority; remove one")
        return bool(value)

    def _pem(self, mapping: dict[str, Any], field: str, label: str) -> PemSource:
        """Return a certificate or key. ``FIELD-data`` has precedence over ``FIELD``, which names a file."""
        if f"{field}-data" in mapping:
            text = self._text(mapping, f"{field}-data", f"{label}-data")
            try:
                data = base64.b64decode("".join(text.split()), validate=True)
            except (binascii.Error, ValueError) as error:
                self._fail(f"{label}-data: not valid base64", error)
            return PemSource(data, field=f"{label}-data")
        if mapping.get(field) in (None, ""):
            return PemSource()
        path = self._resolve(self._text(mapping, field, label))
        return PemSource(self._named_file(path, label), str(path))

    def _resolve(self, path: str) -> Path:
        """Return the path of a file that the kubeconfig names: relative paths start at the kubeconfig's folder."""
        return self._path.absolute().parent / path

    def _named_file(self, path: Path, label: str) -> bytes:
        try:
            data = self._read_file(path)
        except (OSError, SourceError) as error:
            self._fail(f"{label}: {format_path(path)}: {error_reason(error)}", error)
        if not data.strip():
            self._fail(f"{label}: {format_path(path)}: the file is empty")
        return data

    def _credentials(self, user: dict[str, Any], cluster: dict[str, Any]) -> tuple[str, ExecPlugin | None, str]:
        """Return the Authorization header, the plugin that gives it instead, and the field that they come from.

        A token has precedence over a plugin, and a plugin over a user name with a password.
        """
        token, token_source = self._token(user)
        username, password = (self._optional_text(user, name, f"user.{name}") for name in ("username", "password"))
        if user.get("auth-provider") is not None:
            self._fail("user.auth-provider: not supported; use exec, tokenFile or a client certificate")
        plugin = self._plugin(user, cluster)
        basic = self._basic_auth(username, password) if "username" in user and "password" in user else ""
        if token:
            return f"Bearer {token}".strip(), None, token_source
        if plugin is not None:
            return basic, plugin, f"user.exec: {format_value(plugin.command)}"
        return basic, None, "user"

    def _token(self, user: dict[str, Any]) -> tuple[str, str]:
        token = self._optional_text(user, "token", "user.token")
        if token or user.get("tokenFile") in (None, ""):
            return token, "user.token"
        path = self._resolve(self._text(user, "tokenFile", "user.tokenFile"))
        label = f"user.tokenFile: {format_path(path)}"
        try:
            return self._named_file(path, "user.tokenFile").decode(), label
        except UnicodeDecodeError:
            self._fail(f"{label}: the file is not UTF-8 text")

    def _basic_auth(self, username: str, password: str) -> str:
        try:
            return str(make_headers(basic_auth=f"{username}:{password}")["authorization"])
        except UnicodeEncodeError:
            self._fail("user.username, user.password: characters outside Latin-1 cannot be sent")

    def _plugin(self, user: dict[str, Any], cluster: dict[str, Any]) -> ExecPlugin | None:
        plugin = user.get("exec")
        if plugin is None:
            return None
        if not isinstance(plugin, dict):
            self._fail(f"user.exec: {_expected('a mapping', plugin)}")
        api_version = self._text(plugin, "apiVersion", "user.exec.apiVersion")
        args, env = self._plugin_args(plugin), self._plugin_env(plugin)
        if plugin.get("interactiveMode") == "Always":
            self._fail("user.exec.interactiveMode: 'Always' needs a terminal, and knft runs plugins without one")
        return ExecPlugin(
            command=self._text(plugin, "command", "user.exec.command"),
            api_version=api_version,
            args=args,
            env=env,
            folder=str(self._path.absolute().parent),
            cluster=cluster if plugin.get("provideClusterInfo") else None,
        )

    def _plugin_args(self, plugin: dict[str, Any]) -> tuple[str, ...]:
        # Arguments and environment may be secret: messages never contain them.
        args = self._list(plugin, "args", "user.exec.args")
        for index, item in enumerate(args):
            if not isinstance(item, str):
                self._fail(f"user.exec.args[{index}]: {_expected('text', item)}")
        return tuple(args)

    def _plugin_env(self, plugin: dict[str, Any]) -> tuple[tuple[str, str], ...]:
        env = self._list(plugin, "env", "user.exec.env")
        for index, item in enumerate(env):
            if not isinstance(item, dict) or not all(isinstance(item.get(field), str) for field in ("name", "value")):
                self._fail(f"user.exec.env[{index}]: expected a name and a value, both text")
        return tuple((item["name"], item["value"]) for item in env)


def _expected(wanted: str, value: object) -> str:
    return "not set" if value in (None, "") else f"expected {wanted}, found {describe_type(value)}"
