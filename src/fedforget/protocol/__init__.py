"""Protocol: what server and devices agree on. Pure data, checked on arrival."""
