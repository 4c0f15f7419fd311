"""The pytest plug-in: options, fixtures, matrix, results and the terminal summary."""
