"""Keys, certificates and tokens, made by ``go/keys``."""

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

from deploy.programs.build import Programs


class Keys:
    """A folder with a CA, the certificates that it signed, and the key for ServiceAccount tokens."""

    def __init__(self, programs: Programs, folder: Path) -> None:
        """Create the CA."""
        self._programs = programs
        self._program = programs.path("keys")
        self.folder = folder
        folder.mkdir()
        self._run("authority", str(folder))

    def certificate(self, name: str, user: str, *groups: str) -> None:
        """Create NAME.crt and NAME.key, for a user, and for a server on loopback."""
        self._run("certificate", str(self.folder), name, user, *groups)

    def copy_from(self, name: str, other: "Keys") -> None:
        """Replace a certificate and its key by those of another CA."""
        for ending in ("crt", "key"):
            shutil.copy(other.path(f"{name}.{ending}"), self.path(f"{name}.{ending}"))

    def new_ca(self, folder: Path) -> "Keys":
        """Return another CA, in a folder of its own."""
        return Keys(self._programs, folder)

    def token(self, claims: dict[str, Any]) -> str:
        """Return a token as the API server itself would sign it."""
        return self._run("token", str(self.folder), stdin=json.dumps(claims)).strip()

    def path(self, name: str) -> str:
        """Return the path of a file, such as ``ca.crt``."""
        return str(self.folder / name)

    def _run(self, *arguments: str, stdin: str = "") -> str:
        command = [self._program, *arguments]
        return subprocess.run(command, input=stdin, capture_output=True, text=True, check=True).stdout
