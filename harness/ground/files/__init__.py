"""Files on this computer: whole or not there, bounded, in folders of their own."""
