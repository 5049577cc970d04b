"""``knft completion -o json``: the script for a shell, for programs that install it."""

import msgspec


class CompletionDocument(msgspec.Struct, frozen=True):
    """The fields of ``-o json``: the shell, and the script that it loads, as the text output prints it."""

    shell: str
    script: str
