"""debian/copyright of a package with wheels has a paragraph for each wheel, with its licence in Debian's format."""

import re
import zipfile
from pathlib import Path

import pytest

from deploy.packages.errors import PackageError
from deploy.packages.wheel_licences import _DEBIAN_NAMES, wheel_paragraphs

FOLDER = Path(__file__).parents[2] / "deploy/packages/debian"


def make_wheel(folder: Path, name: str, *fields: str, licence_files: dict[str, str] | None = None) -> Path:
    path = folder / f"{name}-1.0-py3-none-any.whl"
    info = f"{name}-1.0.dist-info"
    with zipfile.ZipFile(path, "w") as packed:
        packed.writestr(f"{info}/METADATA", "\n".join(["Metadata-Version: 2.4", f"Name: {name}", *fields, "", "text"]))
        for file_name, text in (licence_files or {}).items():
            packed.writestr(f"{info}/{file_name}", text)
    return path


def test_licence_and_holders_of_each_wheel(tmp_path: Path) -> None:
    holders = "MIT License\n\n  Copyright (c) 2018 Alex Grönholm.\nCopyright 2020 B\n\nThe above copyright\n"
    template = "   Copyright [yyyy] [name of owner]\nCopyright (C) 1989, 1991 Free Software Foundation, Inc.,"
    made = [
        make_wheel(tmp_path, "new", "License-Expression: MIT", licence_files={"licenses/LICENSE.txt": holders}),
        make_wheel(tmp_path, "both", "License-Expression: GPL-2.0-or-later OR Apache-2.0",
                   licence_files={"LICENSE.GPL": template, "NOTICE": "Copyright 2016 C", "METADATA.txt": holders}),
        make_wheel(tmp_path, "old", "Classifier: License :: OSI Approved :: MIT License"),
        make_wheel(tmp_path, "Jinja2", "Classifier: License :: OSI Approved :: BSD License"),
    ]  # fmt: skip
    assert wheel_paragraphs(made).split("\n\n") == [
        "\nFiles: wheels/Jinja2-1.0-py3-none-any.whl\nCopyright: The authors of Jinja2\nLicense: BSD-3-clause",
        "Files: wheels/both-1.0-py3-none-any.whl\nCopyright: 2016 C\nLicense: GPL-2+ or Apache-2.0",
        "Files: wheels/new-1.0-py3-none-any.whl\nCopyright: 2018 Alex Grönholm\n 2020 B\nLicense: Expat",
        "Files: wheels/old-1.0-py3-none-any.whl\nCopyright: The authors of old\nLicense: Expat\n",
    ]


@pytest.mark.parametrize("field", ["License: various", "License-Expression: MIT OR Beerware"])
def test_unknown_licence_is_an_error(tmp_path: Path, field: str) -> None:
    with pytest.raises(PackageError, match=r"the licence of odd-1\.0-py3-none-any\.whl is unknown: '.*'; add it to"):
        wheel_paragraphs([make_wheel(tmp_path, "odd", field)])


def test_text_of_each_licence_is_there() -> None:
    text = "".join((FOLDER / name).read_text() for name in ("common/copyright", "wheels.copyright"))
    paragraphs = set(re.findall(r"(?:^|\n\n)License: (.+)\n .", text))
    names = {debian for spdx, debian in _DEBIAN_NAMES.items() if spdx not in ("AND", "OR")}
    assert names == paragraphs - {"GPL-2"}
