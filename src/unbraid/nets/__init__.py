"""Networks: ordinary modules for one run, sized from the data."""
