"""Sets the OOM score adjustment of this process."""

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
