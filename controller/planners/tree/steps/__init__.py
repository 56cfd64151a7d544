"""What planners of trees share: searches, prices, orders."""
