"""The pytest plug-in: options, matrix, collection, the life of a case, the terminal."""
