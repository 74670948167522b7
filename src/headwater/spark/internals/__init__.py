"""Every use of Spark that is not public API: private classes, Py4J, Catalyst, the Python worker daemon, Java classes.

Spark may change any of this between releases. Each module therefore covers one such use and says in its docstring

- which Spark versions it was seen to work on,
- what Headwater does without it,

and has a function ``probe`` that reports whether the Spark at hand has what the module needs.
"""
