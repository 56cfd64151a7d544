"""A structured cyclic overlay: places and links between regions are exchanged and publishers move."""
