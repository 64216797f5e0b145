"""The report page: its data, its assets, and a local server for decoders of any size."""
