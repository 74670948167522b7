"""The ``headwater`` command: one module per verb."""
