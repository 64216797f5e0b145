"""Files of published datasets: where they are, how they are fetched, checked and converted."""
