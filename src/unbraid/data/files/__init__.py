"""Find, download, check and convert the files of published datasets."""
