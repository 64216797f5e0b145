"""Fast versions of ordinary operations. Nothing in this package depends on runs, methods or datasets."""
