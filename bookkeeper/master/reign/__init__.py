"""Who leads, and what a leader may believe.

``leader`` campaigns and numbers reigns; ``reign_stores`` joins the stores that a reign writes to; ``books_proof``
proves that the leader reads the books of this cluster as they are, before it deletes anything (rule R16).
"""
