"""Cluster states and what kube-proxy's iptables and IPVS modes hand to the kernel for them, to be read by people.

One file a state: a header (``title``, ``from``, ``backend``, ``flags``), the Kubernetes objects, and below them what
the command prints, each section named after a part and a family (``=== iptables-restore ipv4``). Lines that begin with
``#`` say why. Sections without a family are further files that the command is given: ``before``, ``existing``,
``existing-ipvs``, ``existing-addresses``. Besides the parts themselves there are views of them:

- ``every set``: the ipsets that are made, and their types
- ``sets``: those that have entries, in whatever order
- ``servers``: IPVS' virtual servers, and the real ones behind each
- ``bound``: the addresses on kube-ipvs0
- ``listing``: the nat table as ``iptables -t nat -nL`` shows it, against the listing of a document (``listing.py``)

``from`` names what the rules were transcribed from, by hand, without the code they test. Files where it is ``WRITTEN``
instead are written anew, below their objects, by ``python -m tests.compat.golden NAME...``; then they have to be read.
"""

import json
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import yaml
from click.testing import CliRunner
from msgspec import Struct

from knft.cli.main import cli
from tests.compat.golden.listing import listed

FOLDER = Path(__file__).parent
GENERATED = "written by python -m tests.compat.golden"
NODE = "node-1"

Part = dict[str, Any]


class Section(Struct, frozen=True):
    """Lines of a file, comments among them, and what they show; ``family`` is None for what the command is given."""

    name: str
    family: str | None
    lines: tuple[str, ...]

    @property
    def rules(self) -> list[str]:
        """The lines that say what is printed."""
        return [line for line in self.lines if line and not line.startswith("#")]

    @property
    def heading(self) -> str:
        """The line above them."""
        return f"=== {self.name} {self.family}" if self.family else f"=== {self.name}"


class Golden(Struct, frozen=True):
    """A file."""

    path: Path
    above: str
    """Header and objects, as they are written."""
    sections: tuple[Section, ...]

    @property
    def header(self) -> dict[str, Any]:
        """Title, origin, backend and flags."""
        header: dict[str, Any] = yaml.safe_load(self._split[0])
        return header

    @property
    def is_transcribed(self) -> bool:
        """Whether somebody wrote the rules, rather than the code."""
        return str(self.header["from"]) != GENERATED

    @property
    def shown(self) -> tuple[Section, ...]:
        """The sections that show what is printed."""
        return tuple(section for section in self.sections if section.family)

    @property
    def _split(self) -> tuple[str, str]:
        header, _, objects = self.above.partition("\n---\n")
        return header, objects

    def render_section(self, section: Section) -> list[str]:
        """Return what the command prints today, as the section shows it."""
        assert section.family is not None
        if section.name in VIEWS:
            (text,) = self._render(section.family, "-o", "json").splitlines()
            return VIEWS[section.name]({part["part"]: part for part in json.loads(text)["parts"]})
        printed = self._render(section.family, "--part", section.name).splitlines()
        return [line for line in printed if not line.startswith("#")]

    def _render(self, family: str, *form: str) -> str:
        with tempfile.TemporaryDirectory() as folder:
            done = CliRunner().invoke(cli, ["render", *self._arguments(Path(folder)), "--family", family, *form])
        if done.exception is not None:
            raise done.exception
        return done.stdout

    def _arguments(self, folder: Path) -> Iterator[str]:
        cluster = folder / "cluster.yaml"
        cluster.write_text(self._split[1])
        yield from ("-f", str(cluster), "--node", NODE, "--backend", self.header["backend"], *self.header["flags"])
        for section in self.sections:
            if section.family is None:
                given = folder / (f"{section.name}.yaml" if section.name == "before" else section.name)
                given.write_text("\n".join(section.rules) + "\n")
                yield from (f"--{section.name}", str(given))

    def regenerated(self) -> str:
        """Return the file's text with the rules that the command prints today, and the comments that still fit."""
        texts = [self.above]
        for section in self.sections:
            lines = _commented(section, self.render_section(section)) if section.family else section.lines
            texts.append("\n".join((section.heading, *lines)).rstrip())
        return "\n\n".join(texts) + "\n"


def read(path: Path) -> Golden:
    """Return what a file holds."""
    above, *sections = path.read_text().split("\n=== ")
    return Golden(path, above.rstrip(), tuple(map(_section, sections)))


def read_all() -> tuple[Golden, ...]:
    """Return all files, by name."""
    return tuple(map(read, sorted(FOLDER.glob("*.golden"))))


def _section(text: str) -> Section:
    heading, _, body = text.partition("\n")
    name, _, family = heading.rpartition(" ")
    lines = tuple(body.rstrip().split("\n")) if body.strip() else ()
    return Section(name, family, lines) if family in ("ipv4", "ipv6") else Section(heading, None, lines)


def _commented(section: Section, rules: list[str]) -> Iterator[str]:
    """Yield rules, each below the comments that stood above it; those above nothing stay first."""
    above: dict[str, list[str]] = {}
    waiting: list[str] = []
    for line in section.lines:
        if line.startswith("#"):
            waiting.append(line)
        elif line:
            above.setdefault(line, []).extend(waiting)
            waiting = []
    yield from waiting
    for rule in rules:
        yield from above.pop(rule, ())
        yield rule


def _every_set(parts: dict[str, Part]) -> list[str]:
    return [f"{item['name']} {item['type']}" for item in parts["ipset"]["sets"]]


def _sets(parts: dict[str, Part]) -> list[str]:
    return [f"{item['name']}: {' '.join(item['entries'])}" for item in parts["ipset"]["sets"] if item["entries"]]


def _servers(parts: dict[str, Part]) -> list[str]:
    return [_server(server) for server in parts["ipvsadm"]["servers"]]


def _server(server: dict[str, Any]) -> str:
    words = [f"{_socket(server)}/{server['protocol']}", server["scheduler"]]
    words += ["persistent", str(server["persistent"])] * bool(server["persistent"])
    words += ["mh-port"] * server["hashes_ports"]
    return " ".join((*words, *["->"] * bool(server["reals"]), *map(_socket, server["reals"])))


def _socket(end: dict[str, Any]) -> str:
    address = f"[{end['address']}]" if ":" in end["address"] else end["address"]
    return f"{address}:{end['port']}"


def _bound(parts: dict[str, Part]) -> list[str]:
    return [network.partition("/")[0] for network in parts["addresses"]["networks"]]


def _listing(parts: dict[str, Part]) -> list[str]:
    return listed(parts["iptables-restore"], parts["jumps"])


VIEWS: dict[str, Callable[[dict[str, Part]], list[str]]] = {
    "every set": _every_set,
    "sets": _sets,
    "servers": _servers,
    "bound": _bound,
    "listing": _listing,
}
