"""One file per route, or per few that belong together: each has `router(service)`."""
