#!/usr/lib/knft/bin/python3 -I
import sys

from knft.cli.main import main

sys.exit(main())
