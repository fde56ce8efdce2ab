"""The stages of one run, as text, files and pages."""
