"""Write files anew, below their objects: all that nobody wrote by hand, or those named."""

import sys

from tests.compat.golden import read_all

FILES = {golden.path.stem: golden for golden in read_all() if not golden.is_transcribed}

names = sys.argv[1:] or list(FILES)
refused = [name for name in names if name not in FILES]
if refused:
    sys.exit(f"{', '.join(refused)}: the command writes no such file; those written by hand are corrected by hand")
for name in names:
    FILES[name].path.write_text(FILES[name].regenerated())
