"""Where a coordinator's API is unless told otherwise."""

API_PORT = 8000
API_ADDRESS = f"127.0.0.1:{API_PORT}"
API_URL = f"http://{API_ADDRESS}"
