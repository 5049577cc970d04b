"""The manual pages name every command, flag, exit status and field, and groff, man and mandoc accept them."""

import re
import subprocess
import sys
from functools import cache
from inspect import cleandoc
from pathlib import Path

import click
import pytest
import yaml

from deploy.manual import texts
from deploy.manual.__main__ import pages
from deploy.manual.configuration import EXAMPLE
from deploy.manual.roff import Page
from knft.cli.commands import cli
from knft.configuration.gates import GATES
from knft.configuration.options import Support
from knft.configuration.table import OPTIONS
from tests.support.knft_command import KNFT
from tests.support.log_lines import log_lines

ROOT = Path(__file__).parents[2]
LINT = ("mandoc", "-T", "lint")
GROFF = ("groff", "-ww", "-man", "-Tutf8", "-z")
SECONDS = 1_700_000_000
PAGES = {page.file_name: page for page in pages(SECONDS)}
SECTIONS = ["NAME", "SYNOPSIS", "DESCRIPTION", "OPTIONS", "EXIT STATUS", "SEE ALSO"]


@cache
def printed(name: str) -> str:
    """Return the page as mandoc prints it, without bold and italics, in lines that are not broken."""
    command = ["mandoc", "-man", "-Tutf8", "-O", "width=1000"]
    done = subprocess.run(command, input=PAGES[name].text(), capture_output=True, text=True, check=True)
    return re.sub(".\b", "", done.stdout)


def tags(name: str) -> list[str]:
    """Return the tags of the lists on a page."""
    return [line.strip() for line in printed(name).splitlines() if re.match(" {7}[^ ]", line)]


@pytest.fixture(scope="module", params=PAGES)
def page_file(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path: Path = tmp_path_factory.mktemp("page") / request.param
    path.write_text(PAGES[request.param].text(), encoding="ascii")
    return path


def test_every_command_has_a_page() -> None:
    assert set(PAGES) == {"knft.8", "knft-config.5", *(f"knft-{name}.8" for name in cli.commands)}
    for name, command in cli.commands.items():
        assert f"knft-{name}(8)" in printed("knft.8")
        assert command.short_help is not None
        assert command.short_help in printed("knft.8")


@pytest.mark.parametrize("command", cli.commands)
def test_page_of_a_command_has_its_flags_with_their_descriptions(command: str) -> None:
    context = click.Context(cli.commands[command], info_name=command)
    options = [param for param in cli.commands[command].params if isinstance(param, click.Option)]
    expected = [option.get_help_record(context) for option in options]
    text = " ".join(printed(f"knft-{command}.8").split())
    for record in expected:
        if record is not None:
            assert " ".join(f"{record[0]} {record[1]}".replace("`", "").split()) in text


@pytest.mark.parametrize("command", cli.commands)
def test_page_of_a_command_has_all_paragraphs_of_its_help(command: str) -> None:
    """The paragraph with the exit statuses is a section of its own."""
    text = " ".join(printed(f"knft-{command}.8").split())
    for paragraph in cleandoc(cli.commands[command].help or "").replace("`", "").split("\n\n"):
        if not paragraph.startswith("Exit status "):
            assert " ".join(paragraph.replace("\b", "").split()) in text


@pytest.mark.parametrize("command", cli.commands)
def test_page_of_a_command_has_its_exit_statuses(command: str) -> None:
    text = printed(f"knft-{command}.8").partition("\nEXIT STATUS\n")[2]
    found = re.findall(r"^ {7}(\d) +[A-Za-z]", text, re.MULTILINE)
    assert found == re.findall(r"(?<=[ \n])(\d):", cli.commands[command].help or "")
    assert set(found) >= {"0", "1"}


@pytest.mark.parametrize("command", cli.commands)
def test_page_of_a_command_has_the_usual_sections_in_their_order(command: str) -> None:
    headings = re.findall(r"^[A-Z][A-Z ]+$", printed(f"knft-{command}.8"), re.MULTILINE)
    assert [heading for heading in headings if heading in SECTIONS] == SECTIONS
    assert "EXAMPLES" in headings
    assert f"knft-{command} - " in printed(f"knft-{command}.8")


def test_texts_are_about_commands() -> None:
    for table in (texts.EXAMPLES, texts.FILES, texts.ENVIRONMENT, texts.SIGNALS, texts.SEE_ALSO):
        assert set(table) <= set(cli.commands)


EXAMPLES = [(command, example.command) for command, examples in texts.EXAMPLES.items() for example in examples]


@pytest.mark.parametrize(("command", "line"), EXAMPLES)
def test_examples_are_valid_command_lines(command: str, line: str) -> None:
    """click accepts their flags; nothing runs."""
    match = re.search(r"knft (.*?)(?:\)| >|$)", line)
    assert match is not None
    name, *arguments = match[1].split()
    assert name == command
    params = cli.commands[name].make_context(name, arguments, parent=click.Context(cli)).params
    assert params
    # The packages install config.yaml there, which is no manifest.
    assert str(params.get("manifests")) != "/etc/knft"


def test_page_of_the_configuration_has_every_field_and_flag() -> None:
    """Except for supported flags without a field, which are on the page of knft run."""
    found = tags("knft-config.5")
    for option in OPTIONS:
        flags = ", ".join(option.flags)
        if option.field:
            assert (f"{option.field} ({flags})" if flags else option.field) in found
        elif option.support is not Support.SUPPORTED:
            assert flags in found
        else:
            assert all(re.search(rf"^ +{flag} ", printed("knft-run.8"), re.MULTILINE) for flag in option.flags)
    assert [
        gate for gate in GATES if not re.search(rf"^ {{7}}{gate}( |$)", printed("knft-config.5"), re.MULTILINE)
    ] == []


def test_page_of_the_configuration_has_descriptions_and_defaults() -> None:
    text = " ".join(printed("knft-config.5").split())
    assert "oomScoreAdj (--oom-score-adj) OOM score adjustment of the process" in text
    assert "-1000 to 1000. A whole number; default: -999." in text
    for option in OPTIONS:
        if option.field:
            assert option.description[1:].replace("`", "") in text


def test_example_of_a_configuration_is_valid(tmp_path: Path) -> None:
    """knft reads it without a warning."""
    (tmp_path / "config.yaml").write_text(EXAMPLE)
    flags = ["--config", str(tmp_path / "config.yaml"), "--write-config-to", str(tmp_path / "written.yaml")]
    done = subprocess.run([*KNFT, "run", *flags], capture_output=True, text=True, check=True)
    assert {line.severity for line in log_lines(done.stderr)} == {"I"}
    written = yaml.safe_load((tmp_path / "written.yaml").read_text())
    assert written["nftables"]["minSyncPeriod"] == "20ms"
    assert all(line.strip() in printed("knft-config.5") for line in EXAMPLE.splitlines())


def test_mandoc_finds_nothing(page_file: Path) -> None:
    done = subprocess.run([*LINT, page_file], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_groff_and_man_print_no_warning(page_file: Path) -> None:
    for command in (GROFF, ["man", "--warnings", "-E", "UTF-8", "-l", "-Tutf8"]):
        done = subprocess.run([*command, page_file], capture_output=True, text=True, check=True)
        assert done.stderr == ""


def test_linters_find_faults(tmp_path: Path) -> None:
    """Guards the two tests above."""
    path = tmp_path / "wrong.8"
    path.write_text(PAGES["knft.8"].text() + ".PP\n.PP\n\\*[undefined]\n")
    assert subprocess.run([*LINT, path], capture_output=True, check=False).returncode != 0
    done = subprocess.run([*GROFF, path], capture_output=True, text=True, check=False)
    assert "undefined" in done.stderr


def test_pages_depend_only_on_the_source(tmp_path: Path) -> None:
    """The date is SOURCE_DATE_EPOCH, in UTC; without it that of the newest commit."""
    folders = [tmp_path / "first", tmp_path / "second/deep"]
    for number, folder in enumerate(folders):
        environment = {"SOURCE_DATE_EPOCH": str(SECONDS), "PYTHONHASHSEED": str(number), "TZ": f"UTC{-12 * number}"}
        command = [sys.executable, "-m", "deploy.manual", str(folder)]
        subprocess.run(command, check=True, env={**environment, "COLUMNS": str(60 + number)}, cwd=ROOT)
        assert {path.name: path.read_text() for path in folder.iterdir()} == {
            name: page.text() for name, page in PAGES.items()
        }
    assert '"2023-11-14"' in (folders[0] / "knft.8").read_text()


def test_invalid_date_is_an_error(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "deploy.manual", str(tmp_path)],
        env={"SOURCE_DATE_EPOCH": "yesterday"}, capture_output=True, text=True, check=False, cwd=ROOT,
    )  # fmt: skip
    assert done.returncode == 1
    assert done.stderr == "manual: SOURCE_DATE_EPOCH is 'yesterday'; set it to seconds since 1970\n"


def test_special_characters_are_printed_as_they_are() -> None:
    """A line that begins with a period or an apostrophe, backslashes, and quotes."""
    page = Page("name", 1, "summary", version="1", seconds=0)
    page.heading("DESCRIPTION")
    text = r".begins with a period, \n is not a newline, 'quoted' ~ ^ --flag-name"
    page.paragraph(text)
    page.example("'begins with an apostrophe", r"a\b")
    command = ["mandoc", "-man", "-Tutf8", "-O", "width=200"]
    done = subprocess.run(command, input=page.text(), capture_output=True, text=True, check=True)
    lines = [line.strip() for line in re.sub(".\b", "", done.stdout).splitlines()]
    assert {text, "'begins with an apostrophe", r"a\b"} <= set(lines)
