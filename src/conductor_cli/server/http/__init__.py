"""`conductor serve`: the process, its connections, who may ask, the routes, and the page."""
