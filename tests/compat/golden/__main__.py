"""Write files anew, below their objects: all that nobody wrote by hand, or those named."""

import sys

from tests.compat.golden import goldens

for golden in goldens():
    if not golden.is_transcribed and (len(sys.argv) == 1 or golden.path.stem in sys.argv[1:]):
        golden.path.write_text(golden.written_anew())
