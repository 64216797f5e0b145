"""Pictures of what models have learned and of datasets."""
