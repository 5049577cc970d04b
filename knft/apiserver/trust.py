"""Trust: the certificates of a configuration, loaded once into what connections are made with.

Nothing reads their files again after that: some of them live no longer than it takes to load them.
"""

import ssl
from pathlib import Path
from typing import NamedTuple

from urllib3.util import create_urllib3_context

from knft.errors import UsageError
from knft.source.files import shown_path


class Certificates(NamedTuple):
    """The files of a CA, and of a client certificate with its key, "" where there is none; whether to trust anybody."""

    authority: str
    certificate: str
    key: str
    verify: bool
    folder: str = ""
    """Where those are that have no file of their own: they stand in a kubeconfig, or a plugin gives them."""

    def contents(self) -> tuple[bytes, ...]:
        """Return what they hold, which tells whether they are others; raises OSError."""
        return tuple(Path(path).read_bytes() if path else b"" for path in (self.authority, self.certificate, self.key))


def made_context(where: str, files: Certificates) -> ssl.SSLContext:
    """Return what connections are made with; raise UsageError where certificates are none."""
    context = create_urllib3_context(cert_reqs=ssl.CERT_REQUIRED if files.verify else ssl.CERT_NONE)
    path, sort, inline = files.authority, "a CA", "certificate-authority-data"
    try:
        if files.authority:
            context.load_verify_locations(cafile=files.authority)
        elif files.verify:
            context.load_default_certs()
        if files.certificate:
            path, sort = files.certificate, "a client certificate with its key"
            inline = "the one that stands there, or that its plugin gives,"
            # Without a password given, OpenSSL would ask for one at the terminal.
            context.load_cert_chain(files.certificate, files.key or None, password=lambda: "")
    except (OSError, ssl.SSLError) as error:
        said = " ".join(str(error).split()) or type(error).__name__
        name = inline if files.folder and Path(path).is_relative_to(files.folder) else shown_path(path)
        msg = f"{where}: {name} cannot be used as {sort}: {said}"
        raise UsageError(msg) from error
    return context
