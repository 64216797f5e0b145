"""The report page: its data, its assets, and a local server that runs decoders of any size."""
