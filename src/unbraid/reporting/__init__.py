"""One page that shows what runs have learned: tables, pictures, and their decoders live in the browser."""
