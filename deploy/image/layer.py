"""Packs a root directory as a layer: equal directories give equal bytes."""

import gzip
import io
import stat
import tarfile
from pathlib import Path


def pack(root: Path, seconds: int) -> bytes:
    """Return the layer as a tar archive: sorted, all files root's, with the time ``seconds`` since 1970."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for path in sorted(root.rglob("*"), key=lambda each: each.relative_to(root).parts):
            info = archive.gettarinfo(path, arcname=str(path.relative_to(root)))
            info.uid = info.gid = 0
            info.uname = info.gname = ""
            info.mtime, info.mode = seconds, _mode(info)
            if info.isreg():
                with path.open("rb") as content:
                    archive.addfile(info, content)
            else:
                archive.addfile(info)
    return buffer.getvalue()


def _mode(info: tarfile.TarInfo) -> int:
    """Return the mode of a file, which does not depend on the umask of the build; nothing is set-user-ID."""
    if info.isdir() and info.mode & stat.S_ISVTX:
        return 0o1777
    return 0o755 if info.isdir() or info.mode & stat.S_IXUSR else 0o644


def compress(layer: bytes) -> bytes:
    """Return the layer compressed with gzip, without a time."""
    return gzip.compress(layer, compresslevel=9, mtime=0)
