"""knft-config(5): the fields of the configuration file, from the table of options."""

from collections.abc import Iterable

from deploy.manual.commands import Release
from deploy.manual.roff import Page, bold
from knft.configuration.gates import GATES
from knft.configuration.options import Option, Support
from knft.configuration.table import OPTIONS, sentence

EXAMPLE = """\
apiVersion: kubeproxy.config.k8s.io/v1alpha1
kind: KubeProxyConfiguration
mode: nftables
clusterCIDR: 10.244.0.0/16
clientConnection:
  kubeconfig: /var/lib/kube-proxy/kubeconfig.conf
nftables:
  minSyncPeriod: 20ms
"""


def configuration_page(release: Release) -> Page:
    """Return the page about the file of ``knft run --config``."""
    page = release.page("knft-config", 5, "configuration file of knft")
    page.heading("DESCRIPTION")
    page.paragraph(
        "`knft run --config FILE` reads kube-proxy's configuration file: a YAML or JSON document of the kind "
        "`KubeProxyConfiguration`, version `kubeproxy.config.k8s.io/v1alpha1`, as kubeadm writes it. A missing field "
        "has its default. knft prints all errors of the file at once, one line each, and exits with status 2. Unknown "
        "fields and duplicate keys are warnings. If the content of the file changes, knft exits with status 1, to be "
        "restarted."
    )
    page.paragraph(
        "With --config, the values of the file apply. Of the flags only --hostname-override, --master, the logging "
        "flags and knft's own flags apply; knft ignores the others with a warning, as kube-proxy does."
    )
    page.heading("FIELDS")
    page.paragraph("A dot separates the names of a section and its field. A flag in parentheses has the same meaning.")
    for support, title in (
        (Support.SUPPORTED, "Supported fields"),
        (Support.IGNORED, "Ignored fields"),
        (Support.REJECTED, "Rejected fields"),
    ):
        page.subheading(title)
        _add_options(page, (option for option in OPTIONS if option.field and option.support is support))
    page.heading("FEATURE GATES")
    page.paragraph("The field `featureGates` and the flag --feature-gates accept these names. knft rejects others.")
    for name, gate in GATES.items():
        page.item(bold(name), sentence(gate.effect))
    page.heading("FLAGS WITHOUT A FIELD")
    page.paragraph("kube-proxy also has these flags, which knft ignores with a warning or rejects.")
    without_effect = (option for option in OPTIONS if not option.field and option.support is not Support.SUPPORTED)
    _add_options(page, without_effect)
    page.heading("EXAMPLES")
    page.example(*EXAMPLE.splitlines())
    page.see_also(("knft(8)", "knft-run(8)"))
    return page


def _add_options(page: Page, options: Iterable[Option]) -> None:
    for option in options:
        flags = ", ".join(bold(flag) for flag in option.flags)
        name = f"{bold(option.field)}{f' ({flags})' if flags else ''}" if option.field else flags
        note = f"; {option.field_note}" if option.field_note else ""
        page.item(name, sentence(f"{option.description}{note}"), _value_text(option))


def _value_text(option: Option) -> str:
    """Return the type, the default, and what knft does with the value."""
    default = option.default
    shown = (
        "" if default in ("", [], {}) or option.support is not Support.SUPPORTED else f"; default: {_plain(default)}"
    )
    effect = {Support.SUPPORTED: "", Support.IGNORED: "; ignored", Support.REJECTED: "; rejected"}[option.support]
    return sentence(f"{option.kind.value}{shown}{effect}")


def _plain(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
