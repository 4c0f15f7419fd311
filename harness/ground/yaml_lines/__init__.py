"""YAML files written by people: every mistake in them is named by file, line and field."""
