"""The flags of ``knft run``, made from the options table and accepted in the syntax of Go programs.

kube-proxy's command lines work: ``--masquerade-all``, ``--masquerade-all=false``, ``-v=2``, ``--v 2``, ``--log_dir=x``.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from knft.configuration.options import INT32_RANGE, Kind, Option, Support
from knft.configuration.problems import did_you_mean
from knft.configuration.table import OPTIONS, help_text

_TRUE, _FALSE = ("1", "t", "T", "TRUE", "true", "True"), ("0", "f", "F", "FALSE", "false", "False")
_LISTS = (Kind.LIST, Kind.FEATURE_GATES, Kind.VMODULE)
_SWITCHES = (Kind.BOOL, Kind.VERSION)
_KNFT_OPTIONS, _KUBE_PROXY_OPTIONS = "knft's own options", "kube-proxy's options"
_OTHER_FLAGS = "All other flags of kube-proxy are ignored with a warning or rejected: see docs/configuration.md."
_METAVARS = {Kind.INTEGER: "NUMBER", Kind.FLOAT: "NUMBER", Kind.DURATION: "DURATION"}
_PATH_KINDS = {"FILE": "file", "PATH": "file", "DIR": "dir"}
_INVALID_FLAGS = "knft.cli.go_flags.invalid_flags"
"""The key of the messages in the context's ``meta``."""
_SHORT_WITH_VALUE = re.compile(r"-(?P<name>[A-Za-z])=(?P<value>.*)", re.DOTALL)

if TYPE_CHECKING:
    _IntegerType = click.ParamType[int]
    _BooleanType = click.ParamType[bool]
else:  # click before 8.4 has no generic ParamType
    _IntegerType = _BooleanType = click.ParamType


def complete_value(_: click.Context, param: click.Parameter, incomplete: str) -> list[Any]:
    """Return the completions of a flag's value: its choices, or the kind of path that its metavar names.

    The shell itself completes names of files (metavars FILE and PATH) and directories (DIR).
    """
    from click.shell_completion import CompletionItem  # noqa: PLC0415 - only completion needs it

    kind = _PATH_KINDS.get(param.metavar or "") if isinstance(param, click.Option) else None
    if kind is not None:
        return [CompletionItem(incomplete, type=kind)]
    choices: tuple[str, ...] = ()
    if isinstance(param, GoOption):
        choices = ("true", "false") if param.is_switch else param.option.choices
    return [CompletionItem(choice) for choice in choices if choice.startswith(incomplete)]


class _Integer(_IntegerType):
    """An integer in a range, which --help does not show."""

    name = "integer"

    def __init__(self, low: int, high: int) -> None:
        """Accept numbers from ``low`` to ``high``."""
        self._low, self._high = low, high

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:  # noqa: ANN401
        """Return the value, or report a usage error."""
        try:
            found = int(value)
        except ValueError:
            self.fail(f"{value!r} is not a whole number.", param, ctx)
        if not self._low <= found <= self._high:
            self.fail(f"{found} is not in the range {self._low} to {self._high}.", param, ctx)
        return found


class _Boolean(_BooleanType):
    """A Boolean in Go's spellings."""

    name = "boolean"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> bool:  # noqa: ANN401
        """Return the value, or report a usage error."""
        if isinstance(value, bool):
            return value
        if value not in (*_TRUE, *_FALSE):
            self.fail(f"{value!r} is not true or false.", param, ctx)
        return value in _TRUE


class _Version(_Boolean):
    """A Boolean, or ``raw``."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> bool:  # noqa: ANN401
        """Return whether to print the version."""
        return value == "raw" or super().convert(value, param, ctx)


class GoOption(click.Option):
    """A flag from the options table."""

    def __init__(self, flag: str, option: Option) -> None:
        """Make click's option for ``flag``, one of the flags of ``option``."""
        self.flag, self.option = flag, option
        is_list, is_switch = option.kind in _LISTS, option.kind in _SWITCHES
        multiplicity = {"multiple": True} if is_list or option.field == "clusterCIDR" else {"default": None}
        super().__init__(
            option.flags if flag == "--v" else [flag],
            type=_type_of(option),
            metavar="[=false]" if is_switch else option.metavar or _METAVARS.get(option.kind, "VALUE"),
            help=help_text(flag) + _default(option),
            hidden=option.support is not Support.SUPPORTED,
            shell_complete=complete_value,
            **multiplicity,
        )

    def handle_parse_result(
        self, ctx: click.Context, opts: Mapping[str, Any], args: list[str]
    ) -> tuple[Any, list[str]]:
        """Convert the flag's value; keep the message about an invalid one for ``invalid_flags``."""
        try:
            return super().handle_parse_result(ctx, opts, args)
        except click.BadParameter as error:
            ctx.meta[_INVALID_FLAGS].append(f"{self.flag}: {error.message.rstrip('.')}")
            if self.name is not None:
                ctx.set_parameter_source(self.name, ParameterSource.DEFAULT)
            return None, args

    @property
    def is_switch(self) -> bool:
        """Whether the flag may have no value; a value follows an equals sign."""
        return self.option.kind in _SWITCHES


def _type_of(option: Option) -> "click.ParamType[Any]":
    match option.kind:
        case Kind.BOOL:
            return _Boolean()
        case Kind.VERSION:
            return _Version()
        case Kind.INTEGER:
            return _Integer(*(option.value_range or INT32_RANGE))
        case Kind.FLOAT:
            return click.FLOAT
        case _:
            return click.STRING


def _default(option: Option) -> str:
    return (
        f"  [default: {option.default}]"
        if option.default_if_not_zero is not None and option.kind is not Kind.BOOL
        else ""
    )


class GoCommand(click.Command):
    """A command that accepts Go's flag syntax and lists its flags in two groups."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse arguments in Go's syntax, and keep messages about invalid ones for ``invalid_flags``.

        click would end at the first. The messages are printed together with those about values.
        """
        rest, problems = self.in_clicks_syntax(args), ctx.meta.setdefault(_INVALID_FLAGS, [])
        ctx.allow_extra_args = True
        while True:
            try:
                extra = super().parse_args(ctx, [*rest])
                break
            except click.NoSuchOption as error:
                name = normalize_flag_name(error.option_name)
                rest = _without_flag(rest, name, error)
                problems.append(f"{name}: unknown flag, see knft run --help{did_you_mean(name, self._flags())}")
            except click.BadOptionUsage as error:
                problems.append(f"{error.option_name}: it requires a value")
                rest = rest[:-1]
        problems.extend(f"{argument!r}: unexpected argument; knft run has only flags" for argument in extra)
        return []

    def _flags(self) -> list[str]:
        return [name for param in self.params for name in param.opts]

    def in_clicks_syntax(self, args: list[str]) -> list[str]:
        """Return arguments in Go's syntax as click understands them: each switch with a value."""
        switches = {name for option in self._options() if option.is_switch for name in option.opts}
        return list(_normalize_arguments(args, switches))

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write knft's own flags first, then the supported flags of kube-proxy."""
        for title, options in self.option_groups(ctx):
            records = [record for option in options if (record := option.get_help_record(ctx)) is not None]
            with formatter.section(title):
                formatter.write_dl(records)
        formatter.write_paragraph()
        formatter.write_text(_OTHER_FLAGS)

    def option_groups(self, ctx: click.Context) -> tuple[tuple[str, list[click.Parameter]], ...]:
        """Return the titles of the two groups of flags with the flags that --help shows."""
        shown = [option for option in self._options() if not option.hidden]
        helped = [param for param in self.get_params(ctx) if not isinstance(param, GoOption)]
        return (
            (_KNFT_OPTIONS, [*(option for option in shown if option.option.is_knft_only), *helped]),
            (_KUBE_PROXY_OPTIONS, [option for option in shown if not option.option.is_knft_only]),
        )

    def _options(self) -> Iterator[GoOption]:
        return (param for param in self.params if isinstance(param, GoOption))


def _without_flag(args: list[str], name: str, error: click.NoSuchOption) -> list[str]:
    """Return arguments without the first unknown flag and its value; raise the error again if it is not found."""
    for number, arg in enumerate(args):
        flag, equals, _ = arg.partition("=")
        is_short = len(name) == len("-x") and not arg.startswith("--")
        if normalize_flag_name(flag) == name or (is_short and arg.startswith(name)):
            has_value = not equals and number + 1 < len(args) and not args[number + 1].startswith("-")
            return args[:number] + args[number + (2 if has_value else 1) :]
    raise error


def _normalize_arguments(args: list[str], switches: set[str]) -> Iterator[str]:
    rest = iter(args)
    for arg in rest:
        if arg == "--":
            yield arg
            break
        short = _SHORT_WITH_VALUE.fullmatch(arg)
        if short is not None:
            yield from (f"-{short['name']}", short["value"])
        elif normalize_flag_name(arg) in switches:
            yield f"{arg}=true"
        else:
            yield arg
    yield from rest


def normalize_flag_name(name: str) -> str:
    """Return a flag's name with dashes: Kubernetes programs also accept underscores."""
    return name.replace("_", "-")


def run_flags(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add all flags of the options table to a command."""
    params = [GoOption(flag, option) for option in OPTIONS for flag in option.flags if flag.startswith("--")]
    command.__click_params__ = params[::-1]  # type: ignore[attr-defined] # as click's decorators do
    return command


def invalid_flags(context: click.Context) -> tuple[str, ...]:
    """Return messages about flags on the command line that could not be read."""
    return tuple(context.meta[_INVALID_FLAGS])


def given_flags(context: click.Context) -> dict[str, Any]:
    """Return the flags given on the command line, by their names in the options table."""
    return {
        option.flag: context.params[option.name]
        for option in context.command.params
        if isinstance(option, GoOption)
        and option.name is not None
        and context.get_parameter_source(option.name) is ParameterSource.COMMANDLINE
    }
