"""The auto-scheduler: chooses a list of Opts for a kernel."""
