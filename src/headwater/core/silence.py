"""librdkafka prints its own lines on standard error unless it is given somewhere else to put them."""

from __future__ import annotations

import logging

SILENT = logging.getLogger("headwater.librdkafka")
SILENT.addHandler(logging.NullHandler())
SILENT.propagate = False
