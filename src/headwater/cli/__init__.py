"""The ``headwater`` command: one file for each verb, heavy imports inside the verb."""
