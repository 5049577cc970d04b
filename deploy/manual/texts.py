"""What manual pages say beyond the help of the commands, by command."""

from typing import NamedTuple


class Example(NamedTuple):
    """A command line, and what it is for."""

    purpose: str
    command: str


EXIT_STATUS = {
    "0": "Success.",
    "1": "A failure that may not happen again: of the kernel, the API server or the output; or another knft process "
    "runs in this network namespace.",
    "2": "Invalid usage or input, or a machine that lacks something that knft needs; nothing was changed.",
}
"""The exit statuses of commands whose help names none."""

EXAMPLES: dict[str, tuple[Example, ...]] = {
    "run": (
        Example("Serve the Services of an API server, with kube-proxy's configuration file:",
                "knft run --config /var/lib/kube-proxy/config.conf"),
        Example("Serve the Services of manifests in a directory:",
                "knft run --manifests /etc/knft/manifests --node node-1"),
        Example("Set the sysctls and exit, in an init container:", "knft run --init-only"),
        Example("Convert flags to a configuration file:",
                "knft run --proxy-mode=nftables --write-config-to config.yaml"),
    ),
    "render": (
        Example("Print the rules for manifests:", "knft render -f manifests --node node-1"),
        Example("Print what kube-proxy passes to iptables-restore for them:",
                "knft render -f manifests --node node-1 --backend iptables --family ipv4 --part iptables-restore"),
    ),
    "diff": (
        Example("Compare kube-proxy's rules in this node's kernel with those that knft would write:",
                "knft diff -f objects.yaml --node node-1 --live"),
        Example("Compare captured rules, and write a page for a change request:",
                "knft diff -f objects.yaml --node node-1 --iptables-save v4 --ip6tables-save v6 -o html > report.html"),
    ),
    "trace": (
        Example("Trace a packet through knft's rules in this node's kernel:",
                "knft trace --from 10.244.2.12 --to 10.96.0.10:53/udp"),
        Example("Trace a packet through captured rules of kube-proxy:",
                "knft trace --iptables-save v4 --from 198.51.100.7 --to 192.0.2.11:30080 --local-address 192.0.2.11"),
    ),
    "explain": (
        Example("Explain a Service from the objects of the running knft, and compare with this node's kernel:",
                "knft explain shop/web"),
        Example("Explain it from manifests, and compare with this node's kernel:",
                "knft explain shop/web -f objects.yaml --node node-1 --live"),
        Example("Explain a frontend from knft's tables in this node's kernel alone:",
                "knft explain 10.96.0.10:53/udp --source kernel"),
        Example("Say to which endpoint session affinity sends a client, and which endpoints have connections:",
                "knft explain shop/web --client 192.0.2.7 --connections"),
    ),
    "preflight": (
        Example("Check this node with kube-proxy's configuration file:",
                "knft preflight --config /var/lib/kube-proxy/config.conf"),
        Example("Also compare rules and open connections with the cluster's objects, for a program:",
                "knft preflight -f objects.yaml --node node-1 --cluster-cidr 10.244.0.0/16 -o json"),
    ),
    "lint": (
        Example("Check captured objects:", "knft lint -f objects.yaml"),
        Example("Check a change of manifests:", "knft lint -f after --against before --node node-1"),
    ),
    "cleanup": (
        Example("Remove knft's tables:", "knft cleanup"),
        Example("List what that would remove:", "knft cleanup --kube-proxy all --dry-run"),
        Example("Remove the leftovers of all modes of kube-proxy:", "knft cleanup --kube-proxy all"),
    ),
    "status": (
        Example("Print the status of the knft of this node:", "knft status"),
        Example("Print it as one line, for a table of many nodes:", "knft status -o summary"),
        Example("Print it for a program:", "knft status -o json"),
        Example("Check that the kernel's tables are right now what knft wrote:", "knft status --audit"),
    ),
    "history": (
        Example("Print when an endpoint left a Service, and how long new connections still reached it:",
                "knft history shop/web --endpoint 10.244.1.20"),
        Example("Print all changes of the last ten minutes:", "knft history --since 10m"),
    ),
    "top": (
        Example("Show the Services with the most new connections:", "knft top"),
        Example("Print the frontends of Services in namespace shop that refuse connections:",
                "knft top --by frontend --sort refused --filter shop/"),
    ),
    "completion": (Example("Complete knft's commands in this bash:", "source <(knft completion bash)"),),
    "version": (Example("Print the versions for a program:", "knft version -o json"),),
}  # fmt: skip

FILES: dict[str, dict[str, str]] = {
    "run": {
        "/var/run/secrets/kubernetes.io/serviceaccount": "Token and certificate of the pod's service account, used "
        "without --kubeconfig and --master.",
        "/proc/sys/net/netfilter": "Conntrack's sysctls, which knft sets at its start if it uses an API server.",
        "/proc/self/oom_score_adj": "OOM score adjustment, which knft sets at its start if it uses an API server.",
    }
}

ENVIRONMENT: dict[str, dict[str, str]] = {
    "run": {
        "KUBERNETES_SERVICE_HOST, KUBERNETES_SERVICE_PORT": "Address of the API server, used without --kubeconfig and "
        "--master.",
        "HTTPS_PROXY, HTTP_PROXY, ALL_PROXY, NO_PROXY": "Proxies for requests to the API server, and servers without a "
        "proxy; also in lower case.",
        "NOTIFY_SOCKET, WATCHDOG_USEC": "Set by systemd: knft reports that it is ready, alive, or stops, as in "
        "sd_notify(3).",
        "JOURNAL_STREAM": "Set by systemd: if standard error is this socket, each line of the log begins with its "
        "priority.",
    },
    **{
        command: {"NO_COLOR": "If set and not empty, text on a terminal has no colours."}
        for command in ("diff", "trace", "explain", "preflight", "lint", "status")
    },
}

SIGNALS: dict[str, dict[str, str]] = {
    "run": {
        "SIGTERM, SIGINT": "knft exits within about a second, with status 0. The rules stay in force. A second signal, "
        "or one before the daemon is set up, ends knft at once, with status 128 plus the number of the signal."
    },
    "diff": {"SIGTERM, SIGINT": "With --watch, knft exits with status 0."},
}

SEE_ALSO: dict[str, tuple[str, ...]] = {
    "run": ("knft-config(5)", "nft(8)", "sysctl(8)"),
    "render": ("nft(8)", "iptables-restore(8)", "ipset(8)", "ipvsadm(8)"),
    "diff": ("iptables-save(8)", "ipset(8)", "ipvsadm(8)", "nft(8)"),
    "trace": ("iptables-save(8)", "ipset(8)", "ipvsadm(8)", "nft(8)"),
    "explain": ("knft-history(8)", "knft-status(8)", "kubectl(1)", "nft(8)"),
    "preflight": ("nft(8)", "iptables-save(8)", "ip-rule(8)", "conntrack(8)"),
    "lint": ("kubectl(1)",),
    "cleanup": ("nft(8)", "iptables(8)"),
    "status": ("knft-explain(8)", "knft-history(8)", "knft-run(8)"),
    "history": ("knft-explain(8)", "knft-status(8)", "conntrack(8)"),
    "completion": ("bash(1)", "zsh(1)", "fish(1)"),
}
"""Pages beside knft(8), which refers to the pages of all commands."""
