"""A certificate authority for tests, and the certificates that it signs; made by the openssl command."""

import ssl
import subprocess
from pathlib import Path
from typing import NamedTuple

_KEY = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")
# Python 3.13 requires these extensions.
_AUTHORITY = ("-addext", "keyUsage=critical,keyCertSign,cRLSign")
_SIGNED = "subjectKeyIdentifier=hash\nauthorityKeyIdentifier=keyid\n"


class Certificate(NamedTuple):
    """A certificate and its key, as files."""

    certificate: Path
    key: Path


class CertificateAuthority:
    """A certificate authority; ``path`` is its certificate."""

    def __init__(self, folder: Path, name: str) -> None:
        self._folder, self._name = folder, name
        self.path, self._key = folder / f"{name}.crt", folder / f"{name}.key"
        days, subject = ("-days", "2"), ("-subj", f"/CN={name}")
        _openssl("req", "-x509", *_KEY, *_AUTHORITY, *days, *subject, "-keyout", self._key, "-out", self.path)

    def sign(self, name: str, names: str = "IP:127.0.0.1") -> Certificate:
        """Return a certificate for ``name``, valid for the subject alternative ``names``."""
        path, key = self._folder / f"{self._name}-{name}.crt", self._folder / f"{self._name}-{name}.key"
        request, extensions = path.with_suffix(".csr"), path.with_suffix(".ext")
        _openssl("req", "-new", *_KEY, "-subj", f"/CN={name}", "-keyout", key, "-out", request)
        extensions.write_text(f"subjectAltName={names}\n{_SIGNED}")
        signed = ("-CA", self.path, "-CAkey", self._key, "-CAcreateserial", "-extfile", extensions)
        _openssl("x509", "-req", "-in", request, "-days", "2", *signed, "-out", path)
        return Certificate(path, key)

    def server(self, *, asks_clients: bool = False, names: str = "IP:127.0.0.1") -> ssl.SSLContext:
        """Return a server's TLS context; ``asks_clients`` requires client certificates of this CA."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        signed = self.sign("server", names)
        context.load_cert_chain(signed.certificate, signed.key)
        if asks_clients:
            context.verify_mode = ssl.CERT_REQUIRED
            context.load_verify_locations(self.path)
        return context


def _openssl(*words: str | Path) -> None:
    subprocess.run(["/usr/bin/env", "openssl", *map(str, words)], check=True, capture_output=True)
