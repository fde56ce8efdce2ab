"""Programs as files for other languages: object code, libraries, C and a header, without Python."""
