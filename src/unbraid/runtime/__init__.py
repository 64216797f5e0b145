"""What every other package uses: files, locks, signals, progress, provenance, and compilation on first use."""
