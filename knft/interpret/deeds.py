"""What a rule does to a packet, in words."""

from knft.interpret.compare import words
from knft.interpret.ranges import Ranges
from knft.interpret.rules import IpVersion, Remember, SetMark, Step, Translate, Verdict


def in_words(version: IpVersion, step: Step) -> str:
    """Return what an action did, as ``walk.recording`` records it."""
    match step:
        case Verdict():
            return _verdict(step)
        case SetMark(keep=keep, flip=flip):
            return f"mark {flip & ~keep:#x}" if flip & ~keep else f"unmark {flip:#x}"
        case Translate():
            return _translation(version, step)
        case Remember(seconds=seconds):
            return "remember the client" + (f" for {seconds} s" if seconds is not None else "")
    return "not interpreted"


def _verdict(verdict: Verdict) -> str:
    leading = {"jump": "jump to", "goto": "go to"}
    return f"{leading[verdict.kind]} {verdict.chain}" if verdict.kind in leading else verdict.kind


def _translation(version: IpVersion, action: Translate) -> str:
    if action.what == "snat":
        return "masquerade" if action.to_self else f"source {_target(version, action.addresses, action.ports)}"
    if action.to_self:
        return f"to the node's port {words.ports(action.ports)}" if action.ports else "to the node"
    return f"to {_target(version, action.addresses, action.ports)}"


def _target(version: IpVersion, addresses: Ranges, ports: Ranges) -> str:
    if not addresses:
        return f"port {words.ports(ports)}"
    if not ports:
        return words.networks(version, addresses)
    return words.socket(version, addresses[0][0], ports[0][0])
