"""Importers: one module for each venue or vendor, loaded by `ingest.registry` when used."""
