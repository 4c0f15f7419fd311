"""The checks of an Android app that brings QNN along."""
