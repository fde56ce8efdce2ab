"""The pass unroll-devices and its helpers."""
