"""A lab's static site: what broke, where, since when and whose fault it is, as pages that stay."""
