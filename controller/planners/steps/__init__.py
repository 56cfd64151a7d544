"""Steps that several planners share: search, select, order, rank. As pure as the planners."""
