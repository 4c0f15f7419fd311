"""A lab's static site: what broke, where and since when, as pages that stay."""
