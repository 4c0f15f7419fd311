"""Devices that are places of labgrid."""
