"""Check that Python and Java are recent enough for Headwater, before anything is installed and with any Python 3."""

import sys

OLDEST_PYTHON = (3, 11)

if sys.version_info < OLDEST_PYTHON:
    sys.exit(
        "error[python-too-old]: Headwater needs Python 3.11 or newer\n"
        "  found  Python " + sys.version.split()[0] + " at " + sys.executable + "\n"
        "help: install a newer Python and run: make install PYTHON=python3.11"
    )

from headwater.core.errors import HeadwaterError  # noqa: E402  older versions cannot parse it
from headwater.jars.java import require_java  # noqa: E402

try:
    require_java()
except HeadwaterError as error:
    sys.exit(str(error))
