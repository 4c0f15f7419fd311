"""What tests need of Android without a phone: bionic, its shell and its compiler, from a kit."""
