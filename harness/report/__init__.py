"""Reports of one run: HTML, JUnit, summaries, exports for CI."""
