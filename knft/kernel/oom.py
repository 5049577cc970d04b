"""Sets the OOM score adjustment of this process, and of processes that it starts."""

import contextlib
from pathlib import Path


def set_oom_score_adj(value: int | None, file: Path = Path("/proc/self/oom_score_adj")) -> str:
    """Write ``value``, from -1000 (never kill) to 1000 (kill first), to oom_score_adj; None leaves it unchanged.

    Returns the error text, or "" on success: like kube-proxy, knft continues if this fails. Lowering the value requires
    CAP_SYS_RESOURCE. Child processes inherit the value.
    """
    if value is None:
        return ""
    try:
        if file.read_text(encoding="ascii").strip() != str(value):
            file.write_text(str(value), encoding="ascii")
    except OSError as error:
        return f"cannot set {file} to {value}: {error.strerror}"
    return ""


def unprotect_from_oom(process: int) -> None:
    """Set the OOM score adjustment of a child process to 0, the kernel's default, if the child has a lower one.

    Raising the value requires no capability. Processes that the child has already started keep theirs.
    """
    file = Path(f"/proc/{process}/oom_score_adj")
    with contextlib.suppress(OSError, ValueError):  # The process has ended, or is another user's.
        if int(file.read_text(encoding="ascii")) < 0:
            file.write_text("0", encoding="ascii")
