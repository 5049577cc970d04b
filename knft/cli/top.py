"""``knft top``: asks the running knft for its counters again and again, and prints the rates between two answers.

On a terminal it redraws the screen and reads keys; otherwise it prints one table and ends.
"""

import os
import select
import shutil
import sys
import termios
import time
import tty
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import click
import msgspec
from msgspec import Struct, structs

from knft.cli.terminal import terminal_width
from knft.cli.top_text import SORTINGS, Level, Selection, Top, format_top, rates, selected_rows
from knft.control.client import ask, decode
from knft.control.messages import COUNTERS_PATH, Counters

POLL_SECONDS = 0.5
"""How often knft is asked again while it has not read its counters since the last answer."""
_MARGIN_SECONDS = 0.1
_READ_BYTES = 64
_KEYS = "q quit  s sort  f frontends  / filter  Esc clear filter"
_ESCAPE, _BACKSPACES, _ENTER = "\x1b", "\x7f\b", "\r\n"
_ENTER_SCREEN, _LEAVE_SCREEN, _REDRAW = "\x1b[?1049h\x1b[?25l", "\x1b[?25h\x1b[?1049l", "\x1b[H\x1b[2J"


class Screen(Struct, frozen=True):
    """What keys have chosen: the selection, whether the filter is being typed, and whether to end."""

    selection: Selection
    is_typing: bool = False
    is_done: bool = False


def press(screen: Screen, key: str) -> Screen:
    """Return what is chosen after a key."""
    if key == _ESCAPE:
        return Screen(structs.replace(screen.selection, filter=""))
    if screen.is_typing:
        return _type(screen, key)
    selection = screen.selection
    if key == "s":
        following = SORTINGS[(SORTINGS.index(selection.sorting) + 1) % len(SORTINGS)]
        return Screen(structs.replace(selection, sorting=following))
    if key == "f":
        level: Level = "service" if selection.level == "frontend" else "frontend"
        return Screen(structs.replace(selection, level=level))
    return Screen(selection, is_typing=key == "/", is_done=key == "q")


def _type(screen: Screen, key: str) -> Screen:
    if key in _ENTER:
        return Screen(screen.selection)
    if not key.isprintable() and key not in _BACKSPACES:
        return screen
    text = screen.selection.filter
    typed = text[:-1] if key in _BACKSPACES else text + key
    return structs.replace(screen, selection=structs.replace(screen.selection, filter=typed))


def top(selection: Selection, output: str) -> None:
    """Print the rates as "text" or "json"; raise ControlError if no daemon answers."""
    if output == "text" and sys.stdout.isatty() and sys.stdin.isatty():
        _run_screen(selection)
        return
    before = _ask()
    after = next(_later_answers(before, _sleep))
    found = rates(before, after)
    if output == "json":
        click.echo(msgspec.json.format(msgspec.json.encode(selected_rows(found, selection)), indent=2).decode())
        return
    # Standard output is a terminal if only the input is not one, as with `kubectl exec -t` without `-i`.
    click.echo(format_top(found, selection, terminal_width()), nl=False)


def _sleep(seconds: float) -> bool:
    time.sleep(seconds)
    return False


def _ask() -> Counters:
    return decode(ask(COUNTERS_PATH), Counters)


def _later_answers(before: Counters, wait: Callable[[float], bool]) -> Iterator[Counters]:
    """Yield an answer after each later reading, until ``wait`` returns true; it is called with seconds.

    Without counters, yield an answer after each interval.
    """
    while True:
        age = before.asked - before.read if before.read is not None else 0.0
        seconds = max(before.interval - age + _MARGIN_SECONDS, POLL_SECONDS)
        while True:
            if wait(seconds):
                return
            after = _ask()
            if not after.is_counting or (after.read is not None and after.read != before.read):
                break
            seconds = POLL_SECONDS
        yield after
        before = after


def _run_screen(selection: Selection) -> None:
    screen, before, found = Screen(selection), _ask(), Top(True, 0.0, ())  # noqa: FBT003 - nothing is known yet

    def wait(seconds: float) -> bool:
        nonlocal screen
        deadline = time.monotonic() + seconds
        while not screen.is_done and (left := deadline - time.monotonic()) > 0:
            _draw(screen, found)
            if select.select([sys.stdin], [], [], left)[0]:
                screen = _press_all(screen, os.read(sys.stdin.fileno(), _READ_BYTES).decode(errors="replace"))
        return screen.is_done

    with _keys():
        for after in _later_answers(before, wait):
            before, found = after, rates(before, after)


def _press_all(screen: Screen, keys: str) -> Screen:
    """Return what is chosen after keys that were read together; arrows and the like are several characters."""
    if keys.startswith(_ESCAPE) and len(keys) > 1:
        return screen
    for key in keys:
        screen = press(screen, key)
    return screen if keys else structs.replace(screen, is_done=True)  # The terminal is gone.


@contextmanager
def _keys() -> Iterator[None]:
    """Read keys without waiting for a line, on the terminal's other screen."""
    settings = termios.tcgetattr(sys.stdin)
    sys.stdout.write(_ENTER_SCREEN)
    try:
        tty.setcbreak(sys.stdin)
        yield
    except KeyboardInterrupt:
        pass
    finally:
        termios.tcsetattr(sys.stdin, termios.TCSADRAIN, settings)
        sys.stdout.write(_LEAVE_SCREEN)
        sys.stdout.flush()


def _draw(screen: Screen, found: Top) -> None:
    size, selection = shutil.get_terminal_size(), screen.selection
    state = f"{_KEYS}  (sorted by {selection.sorting})"
    if screen.is_typing or selection.filter:
        state = f"filter: {selection.filter}{'_' if screen.is_typing else ''}"
    body = format_top(found, selection, size.columns, size.lines - 2) if found.syncs else "reading the counters...\n"
    sys.stdout.write(f"{_REDRAW}{state[: size.columns]}\n{body}")
    sys.stdout.flush()
