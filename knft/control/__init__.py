"""The control socket: commands such as ``knft status`` ask the running knft (docs/design/control-socket.md)."""
