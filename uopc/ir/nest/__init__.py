"""The loop nest of a kernel: its loops, accesses, reduces and contractions, found once."""
