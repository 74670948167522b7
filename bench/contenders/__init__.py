"""One program per contender. Each runs in its own process; those that are not Spark streams print their times as JSON."""
