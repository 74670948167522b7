"""Alerts: rules as data, evaluated on the history of a stream, and delivered once when they fire and once when they resolve."""
