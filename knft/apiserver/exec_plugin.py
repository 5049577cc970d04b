"""Runs a credential plugin (``user.exec`` of a kubeconfig) and reads the ExecCredential that it prints.

The plugin gets the request in ``KUBERNETES_EXEC_INFO``. It answers with a bearer token, or with a client certificate
and its key. See docs/operations/index.md#plugins.
"""

import json
import os
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
from msgspec import Struct

from knft.apiserver.client_config import ExecPlugin, PemSource
from knft.apiserver.error_text import program_output
from knft.apiserver.plugin_process import run_process
from knft.errors import UsageError

_EXPIRY_MARGIN = timedelta(minutes=5)
"""A token is renewed before it expires, because clocks differ."""
_CONFIG_EXTENSION = "client.authentication.k8s.io/exec"
_MIN_SECRET = 8
"""Shorter values of the plugin's environment are not hidden in its messages: they are words such as ``true``."""


class PluginCredentials(Struct, frozen=True):
    """The credentials from a plugin: a token, or a certificate with its key; ``expires`` is None if it is not given."""

    token: str = ""
    certificate: PemSource = PemSource()
    key: PemSource = PemSource()
    expires: datetime | None = None

    def has_expired(self, now: datetime) -> bool:
        """Tell whether the token has to be renewed at ``now``; a certificate is renewed when the server refuses it."""
        return bool(self.token) and self.expires is not None and self.expires - _EXPIRY_MARGIN <= now

    def is_valid(self, now: datetime) -> bool:
        """Tell whether a server should still accept the credentials at ``now``."""
        return not self.token or self.expires is None or now < self.expires

    def __repr__(self) -> str:
        """Hide the credentials."""
        return "PluginCredentials()"


class _Status(Struct, frozen=True, rename="camel"):
    token: str | None = None
    client_certificate_data: str | None = None
    client_key_data: str | None = None
    expiration_timestamp: str | None = None


class _ExecCredential(Struct, frozen=True, rename="camel"):
    api_version: str
    kind: str
    status: _Status


def run_plugin(plugin: ExecPlugin, label: str) -> PluginCredentials:
    """Run the plugin and return its credentials; raise UsageError, which begins with ``label``, if it gives none."""
    try:
        return _credentials(_run(plugin), plugin, label)
    except (OSError, ValueError, UnicodeDecodeError, msgspec.DecodeError) as error:
        secrets = [value for _, value in plugin.env if len(value) >= _MIN_SECRET]
        msg = f"{label} gives no credentials: {program_output(str(error), secrets) or type(error).__name__}"
        # The cause may quote what the plugin printed.
        raise UsageError(msg) from None


def _run(plugin: ExecPlugin) -> bytes:
    """Return what the plugin prints; raise ValueError if it fails."""
    info = {
        "apiVersion": plugin.api_version,
        "kind": "ExecCredential",
        "spec": {"interactive": False, **({"cluster": _cluster_info(plugin.cluster)} if plugin.cluster else {})},
    }
    environment = {**os.environ, **dict(plugin.env), "KUBERNETES_EXEC_INFO": json.dumps(info)}
    done = run_process([plugin.command, *plugin.args], plugin.folder, environment)
    if done.status:
        errors = done.errors.decode(errors="replace").strip()
        msg = f"exit status {done.status}{': ' + errors if errors else ''}"
        raise ValueError(msg)
    return done.output


def _cluster_info(cluster: dict[str, Any]) -> dict[str, Any]:
    """Return the kubeconfig's cluster with the configuration that it holds for plugins."""
    for extension in cluster.get("extensions") or ():
        if isinstance(extension, dict) and extension.get("name") == _CONFIG_EXTENSION:
            return {**cluster, "config": extension.get("extension")}
    return cluster


# Built once: see api_client.
_CREDENTIAL = msgspec.json.Decoder(_ExecCredential)


def _credentials(printed: bytes, plugin: ExecPlugin, label: str) -> PluginCredentials:
    credential = _CREDENTIAL.decode(printed)
    if credential.api_version != plugin.api_version:
        msg = f"expected apiVersion {plugin.api_version!r}, found {credential.api_version!r}"
        raise ValueError(msg)
    status = credential.status
    expires = _parse_time(status.expiration_timestamp)
    if status.token:
        return PluginCredentials(token=status.token, expires=expires)
    if not status.client_certificate_data or not status.client_key_data:
        msg = "status has neither a token nor clientCertificateData with clientKeyData"
        raise ValueError(msg)
    certificate, key = (
        PemSource(text.encode(), field=label) for text in (status.client_certificate_data, status.client_key_data)
    )
    return PluginCredentials(certificate=certificate, key=key, expires=expires)


def _parse_time(text: str | None) -> datetime | None:
    if not text:
        return None
    try:
        parsed = datetime.fromisoformat(text)
    except ValueError:
        # The token is still usable: the plugin runs again when the server refuses it.
        return None
    return parsed if parsed.tzinfo is not None else parsed.replace(tzinfo=UTC)
