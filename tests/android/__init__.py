"""Parts of Android for tests without a phone: bionic, its shell and its compiler, from a kit."""
