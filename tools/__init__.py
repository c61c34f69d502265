"""Tools of the developers: what they write is checked in, and the product does not import them."""
