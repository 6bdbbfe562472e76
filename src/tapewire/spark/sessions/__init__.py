"""Spark sessions: masters, settings, the required Java, and the packages sent to workers."""
