"""Describes the actions of rules for traces, such as "jump to KUBE-SERVICES" or "masquerade"."""

from knft.families import IpVersion
from knft.interpret.compare import formatting
from knft.interpret.ranges import Ranges
from knft.interpret.rules import AddToSet, SetMark, Step, Translate, Verdict


def action_text(version: IpVersion, step: Step) -> str:
    """Return the description of an action that ``walk.recording`` recorded."""
    match step:
        case Verdict():
            return _verdict(step)
        case SetMark(keep=keep, flip=flip):
            return f"mark {flip & ~keep:#x}" if flip & ~keep else f"clear mark {flip:#x}"
        case Translate():
            return _translation(version, step)
        case AddToSet(seconds=seconds):
            return "add affinity entry" + (f" for {seconds} s" if seconds is not None else "")
    return "not interpreted"


def _verdict(verdict: Verdict) -> str:
    leading = {"jump": "jump to", "goto": "go to"}
    if verdict.kind in leading:
        return f"{leading[verdict.kind]} {verdict.chain}"
    return f"{verdict.kind} with {verdict.reply}" if verdict.reply else verdict.kind


def _translation(version: IpVersion, action: Translate) -> str:
    if action.kind == "snat":
        return (
            "masquerade"
            if action.to_interface_address
            else f"source {_target(version, action.addresses, action.ports)}"
        )
    if action.to_interface_address:
        return f"to the node's port {formatting.format_ports(action.ports)}" if action.ports else "to the node"
    return f"to {_target(version, action.addresses, action.ports)}"


def _target(version: IpVersion, addresses: Ranges, ports: Ranges) -> str:
    if not addresses:
        return f"port {formatting.format_ports(ports)}"
    if not ports:
        return formatting.format_networks(version, addresses)
    return formatting.format_socket(version, addresses[0][0], ports[0][0])
