"""Results as plain values and texts, shared by the terminal, ``--json`` and the page."""
