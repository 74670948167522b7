"""``headwater attach``: the options with which spark-submit records the queries of any program."""

from __future__ import annotations

import shlex

from headwater.cli.app import RUN, JsonObject, app
from headwater.cli.output import json_line, say

LISTENERS = "spark.sql.streaming.streamingQueryListeners"


@app.command(rich_help_panel=RUN)
def attach(as_json: JsonObject = False) -> None:
    """Print the spark-submit options that record the queries of any program.

    Every query that has a checkpoint is then recorded and locked as a Headwater job is, so that log, ui and rewind know
    its rows, its sink, and whether it is running. The program does not change, and need not be a Python program.

    In a PySpark program, one line does the same: headwater.attach(spark), after the session is created.

    Example:
      spark-submit $(headwater attach) program.py
    """
    from headwater.jars.own_jar import LISTENER, own_jar

    jar = str(own_jar())
    options = ["--jars", jar, "--conf", f"{LISTENERS}={LISTENER}"]
    if as_json:
        json_line({"jar": jar, "listener": LISTENER, "conf": {LISTENERS: LISTENER}, "options": options})
    else:
        say(shlex.join(options))
