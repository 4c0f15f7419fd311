"""The content-addressed store on a device."""
