"""This computer: child processes that end with us, deadlines, folders for sockets."""
