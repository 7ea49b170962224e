"""Model files on this machine: downloading, importing, verifying and removing them."""
