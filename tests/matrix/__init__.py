"""Golden scenarios and rewinds on every PySpark that Headwater supports."""
