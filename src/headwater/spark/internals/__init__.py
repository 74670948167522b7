"""Every use of Spark that is not public API: private classes, Py4J, Catalyst, the Python worker daemon, Java classes.

Spark may change any of this between releases. Each module therefore covers one such use. Its docstring names

- the Spark versions on which it is known to work,
- what Headwater does without it,

and its function ``probe`` reports whether the running Spark has what the module needs.
"""
