"""Makes the TLS context of a configuration, from certificates in files and in memory.

OpenSSL loads a client certificate from a file only. Certificates that are not in a file are written to a temporary
folder, which exists only while the context is made.
"""

import contextlib
import ssl
import tempfile
from collections.abc import Iterator
from pathlib import Path

from urllib3.util import create_urllib3_context

from knft.apiserver.client_config import PemSource
from knft.errors import UsageError
from knft.source.files import format_path


def make_tls_context(
    source: str, ca: PemSource, certificate: PemSource, key: PemSource, *, verify: bool
) -> ssl.SSLContext:
    """Return the context; raise UsageError, which begins with ``source``, if a certificate cannot be used.

    Without ``ca``, the CAs of the operating system are trusted.
    """
    context = create_urllib3_context(cert_reqs=ssl.CERT_REQUIRED if verify else ssl.CERT_NONE)
    pem, purpose = ca, "a CA"
    try:
        with _as_files(ca, certificate, key) as (ca_path, certificate_path, key_path):
            if ca:
                context.load_verify_locations(cafile=ca_path)
            elif verify:
                context.load_default_certs()
            if certificate:
                pem, purpose = certificate, "a client certificate with its key"
                # Without a password, OpenSSL would ask for one on the terminal.
                context.load_cert_chain(certificate_path, key_path or None, password=lambda: "")
    except (OSError, ssl.SSLError) as error:
        text = " ".join(str(error).split()) or type(error).__name__
        msg = f"{source}: {format_path(pem.path) if pem.path else pem.field} cannot be used as {purpose}: {text}"
        raise UsageError(msg) from error
    return context


@contextlib.contextmanager
def _as_files(*sources: PemSource) -> Iterator[list[str]]:
    """Yield a path for each source, "" for one that is not set."""
    with contextlib.ExitStack() as stack:
        folder = stack.enter_context(_temporary_folder()) if any(each and not each.path for each in sources) else ""
        paths = [each.path or (str(Path(folder, str(number))) if each else "") for number, each in enumerate(sources)]
        for each, path in zip(sources, paths, strict=True):
            if each and not each.path:
                Path(path).write_bytes(each.data)
        yield paths


def _temporary_folder() -> "tempfile.TemporaryDirectory[str]":
    """Return a folder that only this user can read."""
    try:
        return tempfile.TemporaryDirectory(prefix="knft-", ignore_cleanup_errors=True)
    except OSError as error:
        msg = f"cannot write a kubeconfig's certificates to a temporary folder: {error}; set TMPDIR"
        raise UsageError(msg) from error
