"""Boards behind a real sshd on loopback."""
