"""Leadership, and the proof that the leader reads the right books.

``leader`` campaigns and numbers reigns; ``reign_stores`` joins the stores that a reign writes to; ``books_proof``
proves before each deletion that the leader reads the present books of this cluster (rule R16).
"""
