"""A kubeconfig, looked through before the kubernetes package makes anything of it.

What is wrong with it becomes one line that names the file, the context and the field. It is not checked here whether
anybody answers at the server that it names.
"""

import base64
import binascii
from pathlib import Path
from typing import Any, NoReturn

import yaml
from msgspec import Struct

from knft.apiserver.address import is_address, without_credentials
from knft.errors import SourceError, UsageError
from knft.source.files import read_manifest, reason, shown_path
from knft.source.words import listing, shown, sort_of

MAX_NAMED = 10
"""So many contexts are named in one message."""


class Kubeconfig(Struct, frozen=True):
    """A kubeconfig that can be meant: its path, the context in force, and the files that it names."""

    path: str
    context: str
    files: tuple[str, ...]
    plugin: str = ""
    """The command that credentials come from, "" where they do not come from one."""
    token: str = ""
    """Words for where a token stands; they do not hold it."""
    inline: bool = False
    """Whether certificates stand in it."""


def expanded(path: str) -> Path:
    """Return a path as it is meant; raise UsageError where the ``~`` of nobody stands at its beginning."""
    try:
        return Path(path).expanduser()
    except RuntimeError as error:
        msg = f"kubeconfig {shown_path(path)}: nobody knows the home directory that its ~ means; give the whole path"
        raise UsageError(msg) from error


def look_through(path: str) -> Kubeconfig:
    """Read a kubeconfig; raise UsageError where it cannot be one."""
    return _Reader(path).read()


class _Reader:
    """One look through one file."""

    def __init__(self, path: str) -> None:
        self._path = expanded(path)
        self._where = f"kubeconfig {shown_path(path)}"
        self._files: list[str] = []
        self._inline = False

    def read(self) -> Kubeconfig:
        document = self._parsed()
        self._known_kind(document)
        name = self._current_context(document)
        context = self._mapping(self._named(document, "contexts", name, "current-context"), "context", name)
        self._where = f"{self._where}, context {shown(name)}"
        cluster_name = self._text(context, "cluster", "context.cluster")
        cluster = self._mapping(
            self._named(document, "clusters", cluster_name, "context.cluster"), "cluster", cluster_name
        )
        self._check_cluster(cluster)
        user: dict[str, Any] = {}
        if context.get("user") not in (None, ""):
            user_name = self._text(context, "user", "context.user")
            user = self._mapping(self._named(document, "users", user_name, "context.user"), "user", user_name)
        plugin = self._check_user(user)
        return Kubeconfig(
            str(self._path), name, tuple(self._files), plugin, self._token_place(user, plugin), self._inline
        )

    def _refuse(self, what: str, cause: Exception | None = None) -> NoReturn:
        msg = f"{self._where}: {what}"
        raise UsageError(msg) from cause

    def _parsed(self) -> dict[str, Any]:
        try:
            data = read_manifest(self._path)
        except (OSError, SourceError) as error:
            self._refuse(f"{reason(error)}; give --kubeconfig a file that can be read", error)
        try:
            document = yaml.safe_load(data)
        except yaml.MarkedYAMLError as error:
            mark = error.problem_mark
            place = f"line {mark.line + 1}, column {mark.column + 1}: " if mark is not None else ""
            self._refuse(f"not YAML: {place}{error.problem}", error)
        except (yaml.YAMLError, UnicodeDecodeError, RecursionError, ValueError) as error:
            self._refuse("not YAML: " + " ".join(str(error).split()), error)
        if document is None:
            self._refuse("it is empty")
        if not isinstance(document, dict):
            self._refuse(f"it is {sort_of(document)}, and a mapping of kind Config has to stand here")
        return document

    def _known_kind(self, document: dict[str, Any]) -> None:
        kind, version = document.get("kind", "Config"), document.get("apiVersion", "v1")
        if (kind, version) != ("Config", "v1"):
            self._refuse(f"it holds kind {shown(kind)} of apiVersion {shown(version)}, not a Config of v1")

    def _current_context(self, document: dict[str, Any]) -> str:
        name = document.get("current-context")
        if name in (None, ""):
            known = self._names(document, "contexts")
            choice = f"set it to {listing(known)}" if known else "and there are no contexts either"
            self._refuse(f"current-context: it is missing; {choice}")
        return self._text(document, "current-context", "current-context")

    def _names(self, document: dict[str, Any], field: str) -> tuple[str, ...]:
        items = document.get(field)
        found = [item.get("name") for item in items if isinstance(item, dict)] if isinstance(items, list) else []
        return tuple(shown(name) for name in found if isinstance(name, str))[:MAX_NAMED]

    def _named(self, document: dict[str, Any], field: str, name: str, by: str) -> dict[str, Any]:
        items = document.get(field)
        if items is not None and not isinstance(items, list):
            self._refuse(f"{field}: it is {sort_of(items)}, and a list has to stand here")
        for index, item in enumerate(items or ()):
            if not isinstance(item, dict) or not isinstance(item.get("name"), str):
                self._refuse(f"{field}[{index}]: a mapping with a name has to stand here")
        found: list[dict[str, Any]] = [item for item in items or () if item["name"] == name]
        if len(found) > 1:
            self._refuse(f"{field}: {shown(name)} stands there {len(found)} times; keep one")
        if not found:
            known = self._names(document, field)
            there = f"; there is {listing(known)}" if known else ""
            self._refuse(f"{by}: there is no {shown(name)} in {field}{there}")
        return found[0]

    def _mapping(self, item: dict[str, Any], field: str, name: str) -> dict[str, Any]:
        value = item.get(field)
        if value is None and field == "user":
            return {}
        if not isinstance(value, dict):
            said = "it is missing" if value is None else f"it is {sort_of(value)}, and a mapping has to stand here"
            self._refuse(f"{field} of {shown(name)}: {said}")
        return value

    def _text(self, mapping: dict[str, Any], field: str, words: str) -> str:
        value = mapping.get(field)
        if not isinstance(value, str) or not value:
            said = "it is missing" if value in (None, "") else f"it is {sort_of(value)}, and text has to stand here"
            self._refuse(f"{words}: {said}")
        return value

    def _check_cluster(self, cluster: dict[str, Any]) -> None:
        self._text(cluster, "server", "cluster.server")
        self._check_address(cluster, "server", "https://192.0.2.1:6443")
        self._check_address(cluster, "proxy-url", "http://192.0.2.1:3128")
        self._check_text(cluster, "tls-server-name", "cluster.tls-server-name")
        self._check_file(cluster, "certificate-authority", "cluster.certificate-authority")
        trusting = cluster.get("insecure-skip-tls-verify")
        if not isinstance(trusting, bool | None):
            # To Python, the text "false" is as good as true.
            self._refuse(
                f"cluster.insecure-skip-tls-verify: it is {sort_of(trusting)}, and true or false has to stand here"
            )
        if trusting and (cluster.get("certificate-authority") or cluster.get("certificate-authority-data")):
            self._refuse("cluster.insecure-skip-tls-verify: a CA beside it would be of no use; keep one of them")

    def _check_address(self, cluster: dict[str, Any], field: str, example: str) -> None:
        self._check_text(cluster, field, f"cluster.{field}")
        text = cluster.get(field)
        if text and not is_address(text):
            self._refuse(f"cluster.{field}: {shown(without_credentials(text))} is not an address such as {example}")

    def _check_text(self, mapping: dict[str, Any], field: str, words: str) -> None:
        """Look whether what need not be there is text."""
        if mapping.get(field) not in (None, ""):
            self._text(mapping, field, words)

    def _check_user(self, user: dict[str, Any]) -> str:
        """Look at where credentials come from; return the command, if from one."""
        for field in ("token", "username", "password"):
            self._check_text(user, field, f"user.{field}")
        if user.get("auth-provider") is not None:
            self._refuse(
                "user.auth-provider: knft has none, as kube-proxy has none; use exec, tokenFile or a certificate"
            )
        self._check_file(user, "client-certificate", "user.client-certificate")
        self._check_file(user, "client-key", "user.client-key")
        if not user.get("token"):
            self._check_file(user, "tokenFile", "user.tokenFile")
        plugin = user.get("exec")
        if plugin is None:
            return ""
        if not isinstance(plugin, dict):
            self._refuse(f"user.exec: it is {sort_of(plugin)}, and a mapping has to stand here")
        self._text(plugin, "apiVersion", "user.exec.apiVersion")
        self._check_arguments(plugin)
        return self._text(plugin, "command", "user.exec.command")

    def _check_arguments(self, plugin: dict[str, Any]) -> None:
        """Look at what a plugin is started with; the words never hold it, since it may be secret."""
        for index, item in enumerate(self._list(plugin, "args")):
            if not isinstance(item, str):
                self._refuse(f"user.exec.args[{index}]: it is {sort_of(item)}, and text has to stand here")
        for index, item in enumerate(self._list(plugin, "env")):
            right = isinstance(item, dict) and all(isinstance(item.get(field), str) for field in ("name", "value"))
            if not right:
                self._refuse(f"user.exec.env[{index}]: a name and a value, both text, have to stand here")

    def _list(self, plugin: dict[str, Any], field: str) -> list[Any]:
        value = plugin.get(field)
        if not isinstance(value, list | None):
            self._refuse(f"user.exec.{field}: it is {sort_of(value)}, and a list has to stand here")
        return value or []

    def _token_place(self, user: dict[str, Any], plugin: str) -> str:
        if plugin:
            return f"user.exec: {shown(plugin)}"
        if user.get("token"):
            return "user.token"
        if user.get("tokenFile"):
            return f"user.tokenFile: {shown_path(self._path.absolute().parent / str(user['tokenFile']))}"
        return "user"

    def _check_file(self, mapping: dict[str, Any], field: str, words: str) -> None:
        """Look whether the file that a field names can be read; what the field beside it holds counts before it."""
        if f"{field}-data" in mapping:
            self._inline = True
            self._check_data(mapping, f"{field}-data", f"{words}-data")
            return
        if mapping.get(field) in (None, ""):
            return
        path = self._path.absolute().parent / self._text(mapping, field, words)
        try:
            empty = not read_manifest(path).strip()
        except (OSError, SourceError) as error:
            self._refuse(f"{words}: {shown_path(path)}: {reason(error)}", error)
        if empty:
            self._refuse(f"{words}: {shown_path(path)}: it is empty")
        self._files.append(str(path))

    def _check_data(self, mapping: dict[str, Any], field: str, words: str) -> None:
        try:
            base64.b64decode("".join(self._text(mapping, field, words).split()), validate=True)
        except (binascii.Error, ValueError) as error:
            self._refuse(f"{words}: it is not base64", error)
