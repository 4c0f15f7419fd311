"""devices.yaml, leases, health and recovery of devices."""
