"""What a plan is turned into: configuration, stripes, text, drawing."""
