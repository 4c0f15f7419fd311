"""One run of cases on devices: the plug-in, what it prepares, what a test holds."""
