"""How early the kernel ends this process where memory runs out."""

from pathlib import Path


def set_oom_score_adj(value: int | None, file: Path = Path("/proc/self/oom_score_adj")) -> str:
    """Have the kernel spare this process (-1000) or prefer it (1000); None leaves it, and so does what is there.

    Returns why that failed, "" where it did not: kube-proxy goes on without (I.4). To lower it takes CAP_SYS_RESOURCE.
    Processes that this one starts afterwards have the same.
    """
    if value is None:
        return ""
    try:
        if file.read_text(encoding="ascii").strip() != str(value):
            file.write_text(str(value), encoding="ascii")
    except OSError as error:
        return f"{file} cannot be set to {value}: {error.strerror}"
    return ""
