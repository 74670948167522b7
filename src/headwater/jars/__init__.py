"""The jars that Spark and the broker need, resolved once and kept with checksums; and the Java that runs them."""
