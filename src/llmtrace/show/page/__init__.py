"""The page: thirty seconds that one can see, in one HTML file that needs no server and makes no request."""
