"""What kube-proxy makes sure of before it chooses the IPVS mode (E.1)."""

import shlex
from collections.abc import Iterator

from msgspec import Struct

from knft_compat.ipvs.settings import Settings
from knft_compat.ipvs.vintages import Features

IPSET_NEEDED = "6.0"
_DUMMY = "198.51.100.0:20000"
_MODULES = ("ip_vs", "ip_vs_rr", "ip_vs_wrr", "ip_vs_sh")
_ONE_CONNTRACK = (4, 19)


class Preconditions(Struct, frozen=True, tag="preconditions"):
    """ipset's lowest version; modules that are loaded, and those that must be there; a scheduler to be tried out.

    The old kube-proxies load modules, and give up where one is missing, but for conntrack's; the scheduler's own must
    have been loaded already. Others make a virtual server with the scheduler, see whether it is there, and delete it;
    they need not where ``scheduler`` is None: a virtual server has it.
    """

    ipset: str = IPSET_NEEDED
    loaded: tuple[str, ...] = ()
    needed: tuple[str, ...] = ()
    scheduler: str | None = None
    tool = ("sh",)

    def text(self) -> Iterator[str]:
        """Yield commands; the first that fails says what is missing, and ends."""
        for module in self.loaded:
            yield f"modprobe -- {module} 2>/dev/null || true"
        for module in self.needed:
            in_kernel = f'grep -qs "/{module}\\.ko" "/lib/modules/$(uname -r)/modules.builtin"'
            builtin = f" || {in_kernel}" if module in self.loaded else ""
            yield f'grep -qs "^{module} " /proc/modules{builtin} || {_fail(f"kernel module {module} is missing")}'
        version = "ipset --version | grep -Eq 'v([6-9]|[1-9][0-9]+)\\.[0-9]+'"
        yield f"{version} || {_fail(f'ipset {self.ipset} or newer is needed')}"
        if self.scheduler is not None:
            missing = f"IPVS, or its scheduler {self.scheduler}, is missing"
            yield f"ipvsadm -A -t {_DUMMY} -s {self.scheduler} || {_fail(missing)}"
            yield f"ipvsadm -Ln -t {_DUMMY} >/dev/null || {_fail(missing)}"
            yield f"ipvsadm -D -t {_DUMMY}"


class LoadModule(Struct, frozen=True, tag="modules"):
    """What cleanup loads so that there is something to ask; where it cannot be loaded there is nothing to clean up."""

    name: str = "ip_vs"
    tool = ("sh",)

    def text(self) -> Iterator[str]:
        """Yield the command."""
        yield f"modprobe -va {self.name}"


def preconditions(settings: Settings, features: Features) -> Preconditions:
    """Return what a kube-proxy makes sure of."""
    if features.loads_modules:
        conntrack = "nf_conntrack" if settings.kernel >= _ONE_CONNTRACK else "nf_conntrack_ipv4"
        needed = dict.fromkeys((*_MODULES, f"ip_vs_{settings.scheduler}"))
        return Preconditions(loaded=(*_MODULES, conntrack), needed=tuple(needed))
    in_use = any(server.scheduler == settings.scheduler for server in settings.servers or ())
    return Preconditions(scheduler=None if in_use else settings.scheduler)


def _fail(words: str) -> str:
    return f"{{ echo {shlex.quote(words)} >&2; exit 1; }}"
