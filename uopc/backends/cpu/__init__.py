"""Running programs on this processor: load machine code, check arguments, launch. See README.md."""
