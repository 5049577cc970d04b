"""Makes the TLS context of a configuration, from certificates in files and in memory.

OpenSSL loads a client certificate from a file only. Certificates that are not in a file are passed in a memfd: no file
is left, whenever the process ends, and no writable file system is needed.
"""

import contextlib
import os
import ssl
from collections.abc import Iterator

from urllib3.util import create_urllib3_context

from knft.apiserver.client_config import PemSource
from knft.errors import UsageError
from knft.source.files import format_path

_MFD_NOEXEC_SEAL = 8
"""Nodes may require this flag (sysctl vm.memfd_noexec, since Linux 6.3); earlier kernels do not have it."""


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
        yield [each.path or (stack.enter_context(_in_memory(each.data)) if each else "") for each in sources]


@contextlib.contextmanager
def _in_memory(data: bytes) -> Iterator[str]:
    """Yield the path of a file in memory, which only this process has."""
    with open(_memfd(), "wb") as file:
        file.write(data)
        file.flush()
        yield f"/proc/self/fd/{file.fileno()}"


def _memfd() -> int:
    try:
        return os.memfd_create("knft-certificate", os.MFD_CLOEXEC | _MFD_NOEXEC_SEAL)
    except OSError:
        return os.memfd_create("knft-certificate", os.MFD_CLOEXEC)
