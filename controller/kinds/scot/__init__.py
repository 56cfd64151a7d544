"""A structured cyclic overlay: slots and links between regions are exchanged and publishers move."""
