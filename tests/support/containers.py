"""Commands that run as in a container of the DaemonSet, in the network namespace of the caller."""


def in_container(*capabilities: str) -> tuple[str, ...]:
    """Return the beginning of a command: root with these capabilities alone, and a read-only root file system."""
    read_only = 'mount --make-rprivate / && mount -o remount,bind,ro / && ! touch /.written 2>/dev/null && exec "$@"'
    kept = ",".join(("-all", *(f"+{each.lower()}" for each in capabilities)))
    return (
        *("unshare", "--mount", "sh", "-c", read_only, "sh"),
        *("setpriv", f"--bounding-set={kept}", f"--inh-caps={kept}", "--no-new-privs"),
    )
