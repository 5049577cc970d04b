"""ClientConfig: how to reach an API server, and with which credentials; the equivalent of client-go's ``rest.Config``.

``kubeconfig`` and ``in_cluster`` read it, ``transport`` makes connections from it.
"""

from typing import Any

from msgspec import Struct

from knft.source.files import Signature

FileSignatures = dict[str, Signature | None]
"""Signatures of files by path, taken before reading; None for a file that does not exist."""


class PemSource(Struct, frozen=True):
    """A certificate or a key in PEM: the contents, and the file that has them, "" if they come from elsewhere."""

    data: bytes = b""
    path: str = ""
    field: str = ""
    """Where contents without a file come from, for messages."""

    def __bool__(self) -> bool:
        """Tell whether it is set."""
        return bool(self.data)

    def __repr__(self) -> str:
        """Return where the contents come from: a key must not be shown."""
        return f"PemSource({self.path or self.field!r})"


class ExecPlugin(Struct, frozen=True):
    """A credential plugin: ``user.exec`` of a kubeconfig. It runs in ``folder``, the kubeconfig's."""

    command: str
    api_version: str
    args: tuple[str, ...] = ()
    env: tuple[tuple[str, str], ...] = ()
    folder: str = ""
    cluster: dict[str, Any] | None = None
    """The kubeconfig's cluster, if the plugin asks for it (``provideClusterInfo``)."""

    def __repr__(self) -> str:
        """Return the command only: arguments and environment may be secret."""
        return f"ExecPlugin({self.command!r})"


class ClientConfig(Struct, frozen=True):
    """One configuration.

    Messages about it begin with ``source``, and messages about its credentials with ``credentials_source``.
    ``authorization`` is the value of the Authorization header, "" for none; ``plugin`` is set if a plugin gives the
    credentials instead. ``file_signatures`` are those of all files that were read, by path.
    """

    source: str
    server: str = ""
    ca: PemSource = PemSource()
    client_certificate: PemSource = PemSource()
    client_key: PemSource = PemSource()
    insecure_skip_tls_verify: bool = False
    tls_server_name: str = ""
    proxy_url: str = ""
    authorization: str = ""
    credentials_source: str = ""
    plugin: ExecPlugin | None = None
    file_signatures: FileSignatures = {}
    warnings: tuple[str, ...] = ()

    def __repr__(self) -> str:
        """Return the source only: the other fields hold secrets."""
        return f"ClientConfig({self.source!r})"


def authorization_error(value: str) -> str:
    """Return why an Authorization header cannot be sent, "" if it can; the text never contains the token."""
    if len(value.splitlines()) > 1:
        return "the token has more than one line"
    if not value.isascii() or not value.isprintable():
        return "the token has characters that are not printable ASCII"
    return ""
