"""Directory entries that are not regular files: each function creates one."""

import os
import socket
from pathlib import Path


def directory(path: Path) -> None:
    path.mkdir()


def fifo(path: Path) -> None:
    os.mkfifo(path)


def unix_socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as made:
        made.bind(str(path))


def device(path: Path) -> None:
    path.symlink_to("/dev/zero")


def symlink_loop(path: Path) -> None:
    path.symlink_to(path.name)


def dangling_symlink(path: Path) -> None:
    path.symlink_to("nowhere")
