"""The checks that kube-proxy makes before it uses the IPVS mode (docs/behaviour/ipvs.md#preconditions)."""

import shlex
from collections.abc import Iterator

from msgspec import Struct, field

from knft_compat.ipvs.rule_versions import Features
from knft_compat.ipvs.settings import Settings

MIN_IPSET_VERSION = "6.0"
_BRIDGE_SYSCTL = "/proc/sys/net/bridge/bridge-nf-call-iptables"
_BRIDGE_MESSAGE = "Missing br-netfilter module or unset sysctl br-nf-call-iptables, proxy may not work as intended"
"""The log line of kube-proxy (002 in docs/verification.md#original-documents)."""
_TEST_SERVICE = "198.51.100.0:20000"
_MODULES = ("ip_vs", "ip_vs_rr", "ip_vs_wrr", "ip_vs_sh")
_SINGLE_CONNTRACK_MODULE_KERNEL = (4, 19)


class Preconditions(Struct, frozen=True, tag="preconditions"):
    """The minimum version of ipset, modules to load, modules that must exist, and a scheduler to test.

    Old versions load modules. They fail if a module is missing, except conntrack's. They do not load the scheduler's
    module: it must be loaded already. On a kernel without loadable modules they read the kernel's configuration. They
    also log if iptables does not see bridged packets (``logs_bridge_sysctl``). Newer versions create a virtual server
    with the scheduler, check that it exists, and delete it. ``scheduler`` is None if an existing virtual server uses
    it, which makes the test unnecessary.
    """

    ipset: str = MIN_IPSET_VERSION
    modules_to_load: tuple[str, ...] = field(default=(), name="loaded")
    required_modules: tuple[str, ...] = field(default=(), name="needed")
    scheduler: str | None = None
    logs_bridge_sysctl: bool = False
    tool = ("sh",)

    def text(self) -> Iterator[str]:
        """Yield the commands; the first that fails prints what is missing, and exits."""
        for module in self.modules_to_load:
            yield f"modprobe -- {module} 2>/dev/null || true"
        for module in self.required_modules:
            in_kernel = f'grep -qs "/{module}\\.ko" "/lib/modules/$(uname -r)/modules.builtin"'
            in_configuration = (
                f'{{ [ ! -e /proc/modules ] && grep -qs "^CONFIG_{module.upper()}=y" "/boot/config-$(uname -r)"; }}'
            )
            builtin = f" || {in_kernel} || {in_configuration}" if module in self.modules_to_load else ""
            yield f'grep -qs "^{module} " /proc/modules{builtin} || {_fail(f"kernel module {module} is missing")}'
        version = "ipset --version | grep -Eq 'v([6-9]|[1-9][0-9]+)\\.[0-9]+'"
        yield f"{version} || {_fail(f'ipset {self.ipset} or newer is needed')}"
        if self.scheduler is not None:
            missing = f"IPVS, or its scheduler {self.scheduler}, is missing"
            yield f"ipvsadm -A -t {_TEST_SERVICE} -s {self.scheduler} || {_fail(missing)}"
            yield f"ipvsadm -Ln -t {_TEST_SERVICE} >/dev/null || {_fail(missing)}"
            yield f"ipvsadm -D -t {_TEST_SERVICE}"
        if self.logs_bridge_sysctl:
            yield f"grep -qs -v '^1$' {_BRIDGE_SYSCTL} && echo {shlex.quote(_BRIDGE_MESSAGE)} >&2 || true"


class LoadModule(Struct, frozen=True, tag="modules"):
    """The module that a cleanup loads; if it cannot be loaded, IPVS has nothing to clean up."""

    name: str = "ip_vs"
    tool = ("sh",)

    def text(self) -> Iterator[str]:
        """Yield the command."""
        yield f"modprobe -va {self.name}"


def preconditions(settings: Settings, features: Features) -> Preconditions:
    """Return the checks of a version."""
    if features.loads_modules:
        conntrack = "nf_conntrack" if settings.kernel >= _SINGLE_CONNTRACK_MODULE_KERNEL else "nf_conntrack_ipv4"
        needed = dict.fromkeys((*_MODULES, f"ip_vs_{settings.scheduler}"))
        return Preconditions(
            modules_to_load=(*_MODULES, conntrack), required_modules=tuple(needed), logs_bridge_sysctl=True
        )
    in_use = any(server.scheduler == settings.scheduler for server in settings.existing_servers or ())
    return Preconditions(scheduler=None if in_use else settings.scheduler)


def _fail(message: str) -> str:
    return f"{{ echo {shlex.quote(message)} >&2; exit 1; }}"
