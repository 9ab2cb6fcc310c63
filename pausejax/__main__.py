"""`python -m pausejax`: the command line."""

import sys

from pausejax.commands.main import main

sys.exit(main())
