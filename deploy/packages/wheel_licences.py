"""The paragraphs of debian/copyright about wheels, from the metadata and licence files in the wheels."""

import re
import zipfile
from collections.abc import Iterable, Iterator, Mapping
from email.message import Message
from email.parser import HeaderParser
from pathlib import Path

from msgspec import Struct

from deploy.packages.errors import PackageError

_DEBIAN_NAMES: Mapping[str, str] = {
    "Apache-2.0": "Apache-2.0",
    "BSD-2-Clause": "BSD-2-clause",
    "BSD-3-Clause": "BSD-3-clause",
    "GPL-2.0-or-later": "GPL-2+",
    "MIT": "Expat",
    "MPL-2.0": "MPL-2.0",
    "PSF-2.0": "PSF-2",
    "AND": "and",
    "OR": "or",
}
"""The words of SPDX expressions, in Debian's format; wheels.copyright has the text of each licence."""
_CLASSIFIERS: Mapping[str, str] = {
    "License :: OSI Approved :: Apache Software License": "Apache-2.0",
    "License :: OSI Approved :: MIT License": "MIT",
    "License :: OSI Approved :: Mozilla Public License 2.0 (MPL 2.0)": "MPL-2.0",
}
_UNCLEAR: Mapping[str, str] = {"jinja2": "BSD-3-Clause"}
"""Distributions whose metadata name only a family of licences: what their licence files say."""
_HOLDERS: Mapping[str, tuple[str, ...]] = {"typing_extensions": ("2001-2023 Python Software Foundation",)}
"""Holders for distributions whose licence files name them within a sentence."""
_LICENCE_FILE = re.compile(r"[^/]+\.dist-info/(licenses/)?(LICEN[CS]E|COPYING|NOTICE)[^/]*")
_HOLDER = re.compile(r"Copyright (?!\[|.*(<year>|19yy|Free Software Foundation))(\([Cc]\) )?(?P<holder>.+?)\.?")


class _Wheel(Struct, frozen=True):
    file_name: str
    licence: str
    holders: tuple[str, ...]


def wheel_paragraphs(wheels: Iterable[Path]) -> str:
    """Return a paragraph for each wheel; raise PackageError if the licence of one is unknown."""
    return "".join(
        f"\nFiles: wheels/{wheel.file_name}\n"
        f"Copyright: {(chr(10) + ' ').join(wheel.holders)}\n"
        f"License: {wheel.licence}\n"
        for wheel in map(_read, sorted(wheels))
    )


def _read(path: Path) -> _Wheel:
    with zipfile.ZipFile(path) as files:
        names = files.namelist()
        (metadata,) = [name for name in names if name.endswith(".dist-info/METADATA")]
        fields = HeaderParser().parsestr(files.read(metadata).decode())
        texts = [files.read(name).decode() for name in names if _LICENCE_FILE.fullmatch(name)]
    name = str(fields["Name"])
    holders = _HOLDERS.get(name) or dict.fromkeys(holder for text in texts for holder in _holders(text))
    return _Wheel(path.name, _licence(fields, path.name), tuple(holders) or (f"The authors of {name}",))


def _holders(text: str) -> Iterator[str]:
    """Yield the holders of the copyright, with the years, that a licence file names."""
    for line in text.splitlines():
        if found := _HOLDER.fullmatch(line.strip()):
            yield found["holder"]


def _licence(fields: "Message[str, str]", file_name: str) -> str:
    """Return the licence of a wheel in Debian's format, from its SPDX expression, or from older fields."""
    expression = fields["License-Expression"] or _UNCLEAR.get(fields["Name"].lower()) or _classified(fields)
    words = expression.split()
    if not words or not _DEBIAN_NAMES.keys() >= set(words):
        msg = f"the licence of {file_name} is unknown: {expression!r}; add it to {Path(__file__).name}"
        raise PackageError(msg)
    return " ".join(_DEBIAN_NAMES[word] for word in words)


def _classified(fields: "Message[str, str]") -> str:
    found = [_CLASSIFIERS.get(each, each) for each in fields.get_all("Classifier", ()) if each.startswith("License ::")]
    return " AND ".join(found)
