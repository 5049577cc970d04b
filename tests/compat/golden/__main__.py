"""Regenerate golden files: all that are not written by hand, or the named ones."""

import sys

from tests.compat.golden import read_all

FILES = {golden.path.stem: golden for golden in read_all() if not golden.is_transcribed}

names = sys.argv[1:] or list(FILES)
refused = [name for name in names if name not in FILES]
if refused:
    sys.exit(f"{', '.join(refused)}: not a generated file; edit files that are written by hand")
for name in names:
    FILES[name].path.write_text(FILES[name].regenerated())
