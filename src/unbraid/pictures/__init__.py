"""Pictures of datasets and of what models have learned."""
