"""What runs many runs: bisections, minimal cases, nights."""
