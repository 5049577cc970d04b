"""Command line: writes the manual pages into a folder."""

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path

from deploy.manual.commands import Release, command_pages
from deploy.manual.configuration import configuration_page
from deploy.manual.roff import Page
from deploy.source_date import SourceDateError, source_date_epoch
from knft import __version__
from knft.cli.commands import cli

_ROOT = Path(__file__).parents[2]


def pages(seconds: int) -> Iterator[Page]:
    """Yield all pages; ``seconds`` since 1970 is their date."""
    release = Release(__version__, seconds)
    yield from command_pages(cli, release)
    yield configuration_page(release)


def main() -> None:
    """Write the pages into the folder that the command line names."""
    parser = argparse.ArgumentParser(prog="python -m deploy.manual", description="Write the manual pages of knft.")
    parser.add_argument("folder", type=Path, help="where to write knft.8 and the other pages; created if missing")
    folder: Path = parser.parse_args().folder
    try:
        seconds = source_date_epoch(_ROOT)
        folder.mkdir(parents=True, exist_ok=True)
        for page in pages(seconds):
            (folder / page.file_name).write_text(page.text(), encoding="ascii")
    except (SourceDateError, OSError) as error:
        sys.exit(f"manual: {error}")


if __name__ == "__main__":
    main()
