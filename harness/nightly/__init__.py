"""The nightly pipeline: run, history, bisections, issues."""
