"""Settings out of flags and a file: who wins, and what is said of those that lose (I.3)."""

import re
from collections.abc import Callable
from typing import NamedTuple

from knft.config import parse_addresses, parse_networks
from knft.configuration import flags
from knft.configuration.checks import Names, problems_of
from knft.configuration.conversion import Beside, effective, settings, warnings_of
from knft.configuration.document import Document, canonical_durations, defaulted
from knft.configuration.flags import Given, Origins
from knft.configuration.rows import Verdict
from knft.configuration.settings import Settings
from knft.configuration.table import FLAGS
from knft.errors import ConfigurationError, UsageError
from knft.source.files import shown_path
from knft.source.words import plain, shown

_NODE_NAME = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
"""What the API server takes: a DNS subdomain."""
_LONGEST_NAME = 253


_OF_CLUSTER = ("--kubeconfig", "--master")


class _Collected(NamedTuple):
    """A document with kube-proxy's defaults, how its fields are named, and warnings."""

    document: Document
    name: Names
    origins: Origins
    warnings: tuple[str, ...]


def settings_from(given: Given, hostname: str, read: Callable[[str], bytes]) -> Settings:
    """Return what the given flags, and the file that they name, come to.

    ``given`` holds the flags that somebody has given and no others, by their names in the table (``--v`` for -v);
    ``hostname`` is the machine's; ``read`` returns what a file holds.

    Raise UsageError or ConfigurationError, with a line for each problem.
    """
    _refuse(given)
    collected = _from_file(given, read) if given.get("--config") else _from_flags(given)
    document, name, origins, warnings = collected
    flags.own(document, given, origins)
    problems = problems_of(document, name)
    try:
        node_name = _node_name(given, document, name, hostname)
        beside = Beside(
            node_name=node_name,
            node_ips=parse_addresses("--node-ip", given.get("--node-ip", ())),
            service_cidrs=parse_networks("--service-cidr", given.get("--service-cidr", ())),
            server=_server(given),
        )
    except UsageError as error:
        problems.append(str(error))
    if problems:
        raise ConfigurationError("\n".join(problems))
    canonical_durations(document)
    # Flags alone are a kube-proxy's as well; manifests it does not have, and --cleanup serves nothing.
    of_kube_proxy = bool(given.get("--config")) or not (given.get("--manifests") or given.get("--cleanup"))
    more = warnings_of(document, name, frozenset(origins), of_kube_proxy=of_kube_proxy)
    idle = [
        f"{flag}: {row.note}" for flag in given if (row := FLAGS[flag]).verdict is Verdict.IDLE and _counts(given, flag)
    ]
    aside = [f"{flag}: it means nothing beside --manifests" for flag in _OF_CLUSTER if _is_aside(given, flag)]
    return settings(effective(document), beside, (*warnings, *idle, *aside, *more))


def _is_aside(given: Given, flag: str) -> bool:
    return bool(given.get("--manifests")) and flag in given and _counts(given, flag)


def _counts(given: Given, flag: str) -> bool:
    """Whether a flag is not out of force anyway, which has been said then."""
    return FLAGS[flag].beside_file or not given.get("--config")


def _refuse(given: Given) -> None:
    refused = [
        f"{flag}: it is refused: {row.note}" for flag in given if (row := FLAGS[flag]).verdict is Verdict.REFUSED
    ]
    if refused:
        raise UsageError("\n".join(refused))


def _from_flags(given: Given) -> _Collected:
    origins: Origins = {}
    document = flags.from_flags(given, origins)
    return _Collected(document, Names(origins), origins, tuple(flags.without_meaning(given)))


def _from_file(given: Given, read: Callable[[str], bytes]) -> _Collected:
    from knft.configuration.reading import parsed  # noqa: PLC0415 - jsonschema takes longer to load than all else

    path = given["--config"]
    given_there, warnings = parsed(path, read(path))
    document, origins = defaulted(given_there), Origins()
    flags.beside_file(document, given, origins)
    return _Collected(document, Names(origins, shown_path(path)), origins, (*warnings, *flags.ignored(given)))


def _server(given: Given) -> str:
    """Return the API server's address as it is given; who may enter does not belong there, and is not shown."""
    server = str(given.get("--master", ""))
    if "@" in server:
        msg = (
            "--master: a user's name or password before an @ is refused; give https://HOST:PORT, "
            "and credentials in a kubeconfig (--kubeconfig)"
        )
        raise UsageError(msg)
    return server


def _node_name(given: Given, document: Document, name: Names, hostname: str) -> str:
    """Return the node's name as the API has it, and note it in the document where one is said."""
    own, override = given.get("--node"), given.get("--hostname-override") or None
    names = {
        flag: _trimmed(flag, text)
        for flag, text in (("--node", own), ("--hostname-override", override))
        if text is not None
    }
    if len(set(names.values())) > 1:
        said = " and ".join(f"{flag} {plain(name)}" for flag, name in names.items())
        msg = f"--node: {said} say different things; leave one of the two out"
        raise UsageError(msg)
    if names:
        document["hostnameOverride"] = next(iter(names.values()))
        return _possible(*next(iter(names.items())))
    if document["hostnameOverride"]:
        said = name("hostnameOverride")
        return _possible(said, _trimmed(said, document["hostnameOverride"]))
    if given.get("--manifests"):
        msg = "--node: it is needed with --manifests; give the name that nodeName has in EndpointSlices"
        raise UsageError(msg)
    return _trimmed("the host's name", hostname)


def _possible(said: str, name: str) -> str:
    """Return a name that somebody gave; raise UsageError where no Node can have it, rather than wait for that Node."""
    if len(name) > _LONGEST_NAME or not _NODE_NAME.fullmatch(name):
        msg = f"{said}: {shown(name)} is no name of a Node: letters, digits, - and ., at most {_LONGEST_NAME}"
        raise UsageError(msg)
    return name


def _trimmed(name: str, text: str) -> str:
    found = text.strip().lower()
    if not found:
        msg = f"{name}: the name is empty; give the name that nodeName has in EndpointSlices"
        raise UsageError(msg)
    return found
