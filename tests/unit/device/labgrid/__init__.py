"""What is made of places, without a coordinator."""
