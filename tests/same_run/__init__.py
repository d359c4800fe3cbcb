"""The numbers of whole commands, kept: a change of the code's shape changes none of them."""
