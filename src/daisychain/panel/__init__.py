"""Pages in a browser: the fleet, the runs, and the control panel that starts them. One NiceGUI application."""
