"""The pages of section 8: knft(8), and one for each command, from its help."""

import re
from collections.abc import Iterator, Mapping
from inspect import cleandoc

import click

from deploy.manual import texts
from deploy.manual.roff import Page, bold, tag
from knft.cli.go_flags import GoCommand
from knft.configuration.table import sentence

_STATUS = re.compile(r"(?:Exit status )?(\d): (.*?)(?= \d: |$)")
_STATUS_PARAGRAPH = "Exit status "


class Release:
    """What all pages have in common: the version of knft, and a date in seconds since 1970."""

    def __init__(self, version: str, seconds: int) -> None:
        """Make pages of a version."""
        self._version, self._seconds = version, seconds

    def page(self, name: str, section: int, summary: str) -> Page:
        """Begin a page."""
        return Page(name, section, summary, version=self._version, seconds=self._seconds)


def command_pages(program: click.Group, release: Release) -> Iterator[Page]:
    """Yield knft(8) and the page of each command."""
    context = click.Context(program, info_name="knft", **program.context_settings)
    yield _overview(program, context, release)
    for name, command in sorted(program.commands.items()):
        yield _command_page(name, command, context, release)


def _overview(program: click.Group, context: click.Context, release: Release) -> Page:
    page = release.page("knft", 8, "Kubernetes Service proxy that uses nftables")
    page.heading("SYNOPSIS")
    page.line(f"{bold('knft')} \\fICOMMAND\\fR [\\fIFLAGS\\fR]")
    page.heading("DESCRIPTION")
    page.paragraph(
        "knft sends packets to Kubernetes Services to their endpoints, as kube-proxy does, with rules in the nftables "
        "tables `ip knft` and `ip6 knft`. `knft run` keeps these tables of a node in sync; other commands print, "
        "compare and remove rules."
    )
    page.heading("COMMANDS")
    for name, command in sorted(program.commands.items()):
        page.item(f"{bold(f'knft-{name}')}(8)", _summary(command))
    page.heading("OPTIONS")
    _add_flags(page, context, program.get_params(context))
    _add_exit_statuses(page, texts.EXIT_STATUS)
    page.see_also(("knft-config(5)", "nft(8)", *(f"knft-{name}(8)" for name in sorted(program.commands))))
    return page


def _command_page(name: str, command: click.Command, parent: click.Context, release: Release) -> Page:
    context = click.Context(command, info_name=name, parent=parent)
    summary = _summary(command).removesuffix(".")
    page = release.page(f"knft-{name}", 8, summary[0].lower() + summary[1:])
    page.heading("SYNOPSIS")
    page.line(" ".join([bold("knft"), bold(name), *_required(command), r"[\fIFLAGS\fR]"]))
    statuses = _add_description(page, command)
    _add_options(page, command, context)
    _add_exit_statuses(page, statuses or texts.EXIT_STATUS)
    for title, items in (
        ("SIGNALS", texts.SIGNALS.get(name)),
        ("ENVIRONMENT", texts.ENVIRONMENT.get(name)),
        ("FILES", texts.FILES.get(name)),
    ):
        _add_items(page, title, items or {})
    _add_examples(page, texts.EXAMPLES.get(name, ()))
    page.see_also(("knft(8)", *texts.SEE_ALSO.get(name, ())))
    return page


def _summary(command: click.Command) -> str:
    return command.short_help or command.get_short_help_str(limit=1000)


def _required(command: click.Command) -> Iterator[str]:
    """Yield the required flags and arguments, for the synopsis."""
    for param in command.params:
        if isinstance(param, click.Argument):
            yield f"\\fI{(param.name or '').upper()}\\fR"
        elif param.required:
            yield tag(f"{param.opts[0]} {param.metavar}")


def _add_description(page: Page, command: click.Command) -> dict[str, str]:
    """Add the paragraphs of the help, except that with the exit statuses: return these."""
    page.heading("DESCRIPTION")
    statuses: dict[str, str] = {}
    for paragraph in cleandoc(command.help or "").split("\n\n"):
        first, _, rest = paragraph.partition("\n")
        # click prints the lines of a paragraph that begins with \b as they are.
        if first == "\b":
            page.example(*(line.strip() for line in rest.splitlines()))
        elif paragraph.startswith(_STATUS_PARAGRAPH):
            statuses = dict(_STATUS.findall(" ".join(paragraph.split())))
        else:
            page.paragraph(paragraph)
    return statuses


def _add_options(page: Page, command: click.Command, context: click.Context) -> None:
    arguments = [param for param in command.params if isinstance(param, click.Argument)]
    page.heading("OPTIONS")
    for argument in arguments:
        choices = argument.type.choices if isinstance(argument.type, click.Choice) else ()
        page.item(f"\\fI{(argument.name or '').upper()}\\fR", f"One of {'|'.join(choices)}.")
    if not isinstance(command, GoCommand):
        _add_flags(page, context, command.get_params(context))
        return
    for title, options in command.option_groups(context):
        page.subheading(title[0].upper() + title[1:])
        _add_flags(page, context, options)
    page.subheading("Other flags of kube-proxy")
    page.paragraph("knft ignores them with a warning, or rejects them: see `knft-config`(5).")


def _add_flags(page: Page, context: click.Context, params: list[click.Parameter]) -> None:
    for param in params:
        record = param.get_help_record(context)
        if record is not None and isinstance(param, click.Option):
            page.item(tag(record[0]), " ".join(record[1].split()))


def _add_exit_statuses(page: Page, statuses: Mapping[str, str]) -> None:
    page.heading("EXIT STATUS")
    for status, meaning in statuses.items():
        page.item(bold(status), sentence(meaning.rstrip(".;")))


def _add_items(page: Page, title: str, items: Mapping[str, str]) -> None:
    if items:
        page.heading(title)
    for name, meaning in items.items():
        page.item(", ".join(bold(word) for word in name.split(", ")), meaning)


def _add_examples(page: Page, examples: tuple[texts.Example, ...]) -> None:
    if examples:
        page.heading("EXAMPLES")
    for example in examples:
        page.paragraph(example.purpose)
        page.example(example.command)
