"""Settings of the controller by what they are about; controller_settings puts them together."""
