"""Devices over adb (on adbutils), over ssh, and this computer."""
