"""The store of files on a device: its layout, how files get there, and how it is kept small."""
