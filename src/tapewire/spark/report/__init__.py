"""Reports of jobs: pure functions from small tables to one HTML file that fetches nothing."""
