"""Programs for several devices: each device's launches up to an exchange, and the exchanges."""
