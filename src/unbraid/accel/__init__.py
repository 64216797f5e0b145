"""Fast versions of ordinary operations. Nothing here knows of runs, methods or datasets."""
